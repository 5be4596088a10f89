"""Starting empty while requests run."""

from __future__ import annotations

from radix_engine.cache.flat import FlatCache
from radix_engine.cache.token_run import pack
from tests.cache.flat.use import (
    announce,
    assert_sound,
    hold,
    ids,
    lease_of,
    rest,
    store,
    stored,
)


def test_a_flush_frees_what_nobody_pins() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    assert cache.flush() == 4
    assert cache.pool.free_blocks == 8
    assert stored(cache, ids(64)) == 0
    assert (cache.counters.flushes, cache.counters.evicted_blocks) == (1, 0)
    assert_sound(cache)


def test_running_requests_keep_their_blocks_and_new_ones_start_cold() -> None:
    cache = FlatCache(8)
    lease = hold(cache, ids(64))
    blocks = lease.blocks()
    assert cache.flush() == 0
    assert lease.blocks() == blocks
    assert stored(cache, ids(64)) == 0
    assert (cache.evictable_blocks, cache.available_blocks) == (0, 4)
    assert_sound(cache, [lease])
    cache.release(lease)
    assert cache.pool.free_blocks == 8
    assert_sound(cache)


def test_blocks_shared_over_a_flush_are_free_when_the_last_lease_ends() -> None:
    cache = FlatCache(8)
    first, second = hold(cache, ids(64)), lease_of(cache, ids(33))
    cache.flush()
    cache.release(first)
    assert cache.pool.free_blocks == 6
    cache.release(second)
    assert cache.pool.free_blocks == 8
    assert_sound(cache)


def test_what_a_request_from_before_the_flush_publishes_is_not_found() -> None:
    cache = FlatCache(8)
    old = hold(cache, ids(32))
    cache.flush()
    new = hold(cache, ids(32))
    run, blocks = rest(cache, old, ids(48))
    assert cache.publish(old, run, blocks) == blocks
    assert old.num_tokens == 48
    assert stored(cache, ids(48)) == 32
    assert cache.match(pack(ids(49))).blocks == new.blocks()
    assert_sound(cache, [old, new])
    cache.release(old)
    assert cache.pool.free_blocks == 6
    assert_sound(cache, [new])


def test_it_cannot_announce_either() -> None:
    cache = FlatCache(8)
    old = hold(cache, ids(32))
    cache.flush()
    run, blocks = rest(cache, old, ids(48))
    assert not cache.announce(old, run, blocks)
    assert old.num_tokens == 32
    assert_sound(cache, [old], [blocks])


def test_blocks_in_flight_at_a_flush_are_committed_or_withdrawn_as_ever() -> None:
    cache = FlatCache(8)
    first, second = announce(cache, ids(32)), announce(cache, ids(32, 1))
    other = lease_of(cache, ids(40, 1))
    cache.flush()
    assert_sound(cache, [first, second, other])
    cache.commit(first)
    cache.withdraw(second)
    assert cache.is_broken(other)
    assert not cache.stored.index
    assert_sound(cache, [first, second, other])
    for lease in (first, second, other):
        cache.release(lease)
    assert cache.pool.free_blocks == 8
    assert_sound(cache)


def test_a_request_that_begins_after_the_flush_stores_as_ever() -> None:
    cache = FlatCache(8)
    store(cache, ids(32))
    cache.flush()
    store(cache, ids(32))
    assert stored(cache, ids(32)) == 32
