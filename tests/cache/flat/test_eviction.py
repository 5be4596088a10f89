"""What goes when room is needed, and in which order."""

from __future__ import annotations

from radix_engine.cache.flat import FlatCache
from radix_engine.cache.token_run import pack
from tests.cache.flat.use import assert_sound, hold, ids, lease_of, store, stored, take


def test_a_prompts_last_block_goes_first() -> None:
    cache = FlatCache(4)
    blocks = store(cache, ids(64))
    assert list(cache.stored.queue) == list(reversed(blocks))
    take(cache, 1)
    assert stored(cache, ids(64)) == 48
    take(cache, 2)
    assert stored(cache, ids(64)) == 16


def test_the_least_recently_used_prompt_goes_first() -> None:
    cache = FlatCache(6)
    for seed in (1, 2, 3):
        store(cache, ids(32, seed))
    cache.release(lease_of(cache, ids(33, 1)))
    take(cache, 2)
    assert [stored(cache, ids(32, seed)) for seed in (1, 2, 3)] == [32, 0, 32]


def test_a_shared_beginning_goes_after_what_follows_it() -> None:
    cache = FlatCache(8)
    store(cache, [*ids(32), *ids(32, 1)])
    store(cache, [*ids(32), *ids(32, 2)])
    cache.evict(4)
    assert stored(cache, ids(32)) == 32
    assert cache.evictable_blocks == 2


def test_free_blocks_go_before_cached_ones() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    take(cache, 4)
    assert stored(cache, ids(64)) == 64
    assert cache.counters.evicted_blocks == 0


def test_no_more_is_evicted_than_is_missing() -> None:
    cache = FlatCache(8)
    store(cache, ids(96))
    take(cache, 3)  # 2 are free
    assert cache.counters.evicted_blocks == 1
    assert stored(cache, ids(96)) == 80


def test_pinned_blocks_are_never_taken() -> None:
    cache = FlatCache(4)
    lease = hold(cache, ids(64))
    assert cache.available_blocks == 0
    assert cache.allocate(1) is None
    assert cache.evict(4) == 0
    assert stored(cache, ids(64)) == 64
    assert_sound(cache, [lease])


def test_an_allocation_that_cannot_be_met_evicts_nothing() -> None:
    cache = FlatCache(4)
    store(cache, ids(32))
    lease = hold(cache, ids(16, 1))
    assert cache.allocate(4) is None
    assert cache.evictable_blocks == 2
    blocks = take(cache, 3)
    assert cache.available_blocks == 0
    assert_sound(cache, [lease], [blocks])


def test_a_hit_keeps_a_block_from_being_taken() -> None:
    cache = FlatCache(4)
    store(cache, ids(64))
    lease = lease_of(cache, ids(33))
    assert cache.evict(4) == 2
    assert list(cache.match(pack(ids(65))).blocks) == list(lease.blocks())
    assert_sound(cache, [lease])


def test_evict_says_how_many_blocks_it_freed() -> None:
    cache = FlatCache(8)
    store(cache, ids(48))
    assert cache.evict(2) == 2
    assert cache.evict(2) == 1
    assert cache.evict(2) == 0
    assert cache.counters.evicted_blocks == 3
    assert cache.pool.free_blocks == 8
