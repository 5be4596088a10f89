"""Computed blocks handed over, and leases given back."""

from __future__ import annotations

import logging

import pytest

from radix_engine.cache.block_pool import FREE, PRIVATE, TREE, OwnershipError
from radix_engine.cache.flat import FlatCache
from radix_engine.cache.token_run import pack, token_array
from tests.cache.flat.use import (
    announce,
    assert_sound,
    hold,
    ids,
    lease_of,
    rest,
    store,
    stored,
    take,
)


def test_published_blocks_are_pinned_and_found() -> None:
    cache = FlatCache(8)
    lease = lease_of(cache, ids(40))
    blocks = take(cache, 2)
    assert cache.publish(lease, pack(ids(32)), blocks) == blocks
    assert lease.blocks() == blocks
    assert lease.num_tokens == 32
    assert stored(cache, ids(32)) == 32
    assert cache.evictable_blocks == 0
    assert [cache.pool.owner_of(block) for block in blocks] == [TREE, TREE]
    assert_sound(cache, [lease])


def test_what_is_stored_already_replaces_the_duplicate() -> None:
    cache = FlatCache(8)
    first, second = lease_of(cache, ids(48)), lease_of(cache, ids(48))
    kept = cache.publish(first, *rest(cache, first, ids(32)))
    run, mine = rest(cache, second, ids(48))
    table = cache.publish(second, run, mine)
    assert table[:2] == kept
    assert table[2] == mine[2]
    assert cache.counters.duplicate_blocks == 2
    assert [cache.pool.owner_of(block) for block in mine] == [FREE, FREE, TREE]
    assert_sound(cache, [first, second])


def test_a_stored_block_that_replaces_a_duplicate_is_pinned() -> None:
    cache = FlatCache(8)
    late = lease_of(cache, ids(32))
    kept = store(cache, ids(32))
    cache.publish(late, *rest(cache, late, ids(32)))
    assert late.blocks() == kept
    assert cache.evictable_blocks == 0
    assert cache.evict(8) == 0
    assert_sound(cache, [late])


def test_publishing_nothing_changes_nothing() -> None:
    cache = FlatCache(8)
    lease = hold(cache, ids(32))
    version = cache.version
    assert list(cache.publish(lease, b"", token_array())) == []
    assert (lease.num_tokens, cache.version) == (32, version)


def test_a_run_that_does_not_fill_its_blocks_is_refused() -> None:
    cache = FlatCache(8)
    lease = lease_of(cache, ids(40))
    blocks = take(cache, 2)
    with pytest.raises(ValueError, match="31 tokens do not fill 2 blocks of 16"):
        cache.publish(lease, pack(ids(31)), blocks)
    assert_sound(cache, [lease], [blocks])


def test_blocks_that_are_not_the_requests_own_are_refused_before_anything_changes() -> None:
    cache = FlatCache(8)
    taken = store(cache, ids(16))
    lease = lease_of(cache, ids(40, 1))
    mine = take(cache, 1)
    with pytest.raises(OwnershipError):
        cache.publish(lease, pack(ids(32, 1)), mine + taken)
    with pytest.raises(OwnershipError):
        cache.announce(lease, pack(ids(32, 1)), mine + taken)
    assert stored(cache, ids(32, 1)) == 0
    assert cache.pool.owner_of(mine[0]) == PRIVATE
    assert_sound(cache, [lease], [mine])


def test_a_released_lease_stores_nothing() -> None:
    cache = FlatCache(8)
    lease = lease_of(cache, ids(40))
    cache.release(lease)
    run, blocks = rest(cache, lease, ids(40))
    for store_them in (cache.publish, cache.announce):
        with pytest.raises(OwnershipError, match="released"):
            store_them(lease, run, blocks)
    assert_sound(cache, [], [blocks])


def test_announced_blocks_come_before_published_ones() -> None:
    cache = FlatCache(8)
    lease = announce(cache, ids(32))
    run, blocks = rest(cache, lease, ids(48))
    with pytest.raises(OwnershipError, match="commit or withdraw"):
        cache.publish(lease, run, blocks)
    cache.commit(lease)
    assert cache.publish(lease, run, blocks) == blocks


def test_a_second_release_is_counted_and_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = FlatCache(8)
    other = hold(cache, ids(32))
    lease = lease_of(cache, ids(33))
    cache.release(lease)
    with caplog.at_level(logging.WARNING):
        cache.release(lease)
    assert cache.counters.repeated_releases == 1
    assert "a lease of 32 tokens was released twice" in caplog.text
    assert cache.evictable_blocks == 0
    assert_sound(cache, [other])


def test_a_block_is_evictable_when_its_last_lease_ends() -> None:
    cache = FlatCache(8)
    first, second = hold(cache, ids(32)), lease_of(cache, ids(17))
    cache.release(first)
    assert cache.evictable_blocks == 1
    cache.release(second)
    assert cache.evictable_blocks == 2
    assert list(second.blocks()) == []
    assert_sound(cache)


def test_freed_private_blocks_can_be_allocated_again() -> None:
    cache = FlatCache(2)
    blocks = take(cache, 2)
    assert cache.allocate(1) is None
    cache.free(blocks)
    assert len(take(cache, 2)) == 2
