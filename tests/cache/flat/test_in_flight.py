"""Blocks that a step announces before it has computed them."""

from __future__ import annotations

import pytest

from radix_engine.cache.block_pool import FREE, IN_FLIGHT, TREE, OwnershipError
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


def test_announced_blocks_are_found_by_others_of_the_same_step() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    other = lease_of(cache, ids(40))
    assert other.num_tokens == owner.num_tokens == 32
    assert other.blocks() == owner.blocks()
    assert cache.pool.in_flight_blocks == 2
    assert_sound(cache, [owner, other])


def test_committed_blocks_are_computed() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    other = lease_of(cache, ids(40))
    cache.commit(owner)
    assert [cache.pool.owner_of(block) for block in other.blocks()] == [TREE, TREE]
    cache.release(owner)
    cache.release(other)
    assert stored(cache, ids(32)) == 32
    assert_sound(cache)


def test_a_commit_keeps_matches_good() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    match = cache.match(pack(ids(40)))
    cache.commit(owner)
    assert cache.lease(match).num_tokens == 32


def test_a_commit_of_nothing_changes_nothing() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    for _ in range(2):
        cache.commit(owner)
        assert cache.pool.tree_blocks == 2
    cache.withdraw(owner)
    assert owner.num_tokens == 32
    assert cache.counters.withdrawn_blocks == 0


def test_withdrawn_blocks_are_free_and_not_found() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    cache.withdraw(owner)
    assert stored(cache, ids(32)) == 0
    assert cache.pool.free_blocks == 8
    assert owner.num_tokens == 0
    assert cache.counters.withdrawn_blocks == 2
    assert not cache.is_broken(owner)
    assert_sound(cache, [owner])


def test_a_lease_on_withdrawn_blocks_is_broken_and_the_last_one_frees_them() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    block = owner.blocks()[1]
    second, third = lease_of(cache, ids(40)), lease_of(cache, ids(33))
    short = lease_of(cache, ids(5))
    cache.withdraw(owner)
    assert [cache.is_broken(lease) for lease in (owner, second, third, short)] == [
        False,
        True,
        True,
        False,
    ]
    cache.release(owner)
    cache.release(second)
    assert cache.pool.owner_of(block) == IN_FLIGHT
    assert_sound(cache, [third, short])
    cache.release(third)
    assert cache.pool.owner_of(block) == FREE
    assert cache.pool.free_blocks == 8
    assert not cache.stored.withdrawn
    assert_sound(cache, [short])


def test_a_broken_lease_stores_and_commits_nothing() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    other = announce(cache, ids(64))
    assert other.num_tokens == 64
    cache.withdraw(owner)
    run, blocks = pack(ids(16, 1)), take(cache, 1)
    for refused in (
        lambda: cache.commit(other),
        lambda: cache.publish(other, run, blocks),
        lambda: cache.announce(other, run, blocks),
    ):
        with pytest.raises(OwnershipError, match="withdrawn; release it"):
            refused()
    cache.free(blocks)
    cache.release(other)
    assert not cache.stored.index
    assert cache.pool.free_blocks == 8
    assert cache.counters.withdrawn_blocks == 4
    assert_sound(cache, [owner])


def test_a_withdrawn_prefix_can_be_announced_again_at_once() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    broken = lease_of(cache, ids(40))
    cache.withdraw(owner)
    cache.release(owner)
    again = announce(cache, ids(32))
    assert not set(again.blocks()) & set(broken.blocks())
    cache.commit(again)
    assert cache.match(pack(ids(40))).blocks == again.blocks()
    assert_sound(cache, [again, broken])


def test_a_release_withdraws_what_was_not_computed() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    other = lease_of(cache, ids(40))
    cache.release(owner)
    assert cache.is_broken(other)
    cache.release(other)
    assert cache.pool.free_blocks == 8
    assert_sound(cache)


def test_only_what_was_not_committed_is_withdrawn() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(32))
    cache.commit(owner)
    assert cache.announce(owner, *rest(cache, owner, ids(48)))
    assert cache.announce(owner, *rest(cache, owner, ids(64)))
    cache.withdraw(owner)
    assert owner.num_tokens == 32
    assert stored(cache, ids(64)) == 32
    cache.publish(owner, *rest(cache, owner, ids(48)))
    assert stored(cache, ids(64)) == 48
    assert_sound(cache, [owner])


def test_what_somebody_stores_already_is_not_announced() -> None:
    cache = FlatCache(8)
    late = lease_of(cache, ids(48))
    owner = announce(cache, ids(32))
    run, blocks = rest(cache, late, ids(48))
    assert not cache.announce(late, run, blocks)
    assert late.num_tokens == 0
    assert_sound(cache, [owner, late], [blocks])


def test_there_is_nothing_to_announce_in_an_empty_run() -> None:
    cache = FlatCache(8)
    owner = hold(cache, ids(32))
    version = cache.version
    assert not cache.announce(owner, b"", token_array())
    assert cache.version == version


def test_a_later_block_that_is_stored_stays_the_one_that_is_found() -> None:
    cache = FlatCache(8)
    cache._order_of_leaving = lambda held: held  # type: ignore[method-assign]
    kept = store(cache, ids(32))[1]
    cache.evict(1)  # the first block
    lease = announce(cache, ids(48))
    cache.commit(lease)
    first, second, third = lease.blocks()
    assert list(cache.match(pack(ids(49))).blocks) == [first, kept, third]
    assert_sound(cache, [lease])
    cache.release(lease)
    assert cache.pool.owner_of(second) == FREE
    assert_sound(cache)


def test_nobody_takes_over_a_block_before_it_is_computed() -> None:
    cache = FlatCache(8)
    late = lease_of(cache, ids(48))
    run, mine = rest(cache, late, ids(48))
    store(cache, ids(16))
    owner = announce(cache, ids(32))
    assert list(cache.publish(late, run, mine)) == list(owner.blocks()[:1])
    assert late.num_tokens == 16
    assert cache.counters.duplicate_blocks == 1
    assert_sound(cache, [owner, late], [mine[1:]])


@pytest.mark.parametrize("computed", [True, False])
def test_the_rest_is_published_when_that_is_computed_or_withdrawn(computed: bool) -> None:
    cache = FlatCache(8)
    late = lease_of(cache, ids(32))
    run, mine = rest(cache, late, ids(32))
    owner = announce(cache, ids(32))
    theirs = owner.blocks()
    assert list(cache.publish(late, run, mine)) == []
    if computed:
        cache.commit(owner)
    else:
        cache.withdraw(owner)
    assert not cache.is_broken(late)
    assert cache.publish(late, run, mine) == (theirs if computed else mine)
    assert stored(cache, ids(32)) == 32
    assert_sound(cache, [owner, late])


def test_blocks_in_flight_are_never_evicted() -> None:
    cache = FlatCache(2)
    owner = announce(cache, ids(32))
    assert cache.evict(2) == 0
    assert cache.allocate(1) is None
    assert_sound(cache, [owner])
