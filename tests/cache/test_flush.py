from __future__ import annotations

from radix_engine.cache import pack
from tests.cache.trees import (
    assert_sound,
    covered,
    hold,
    ids,
    lease_of,
    make_cache,
    publish,
    store,
    stored,
    take,
)


def test_a_flush_without_leases_frees_everything_at_once() -> None:
    cache = make_cache(16, 4)
    store(cache, ids(16, 1))
    store(cache, [*ids(8, 1), *ids(8, 2)])
    assert cache.flush() == 6
    assert covered(cache, ids(17, 1)) == 0
    assert cache.pool.free_blocks == 16
    assert cache.detached == []
    assert cache.counters.flushes == 1
    assert_sound(cache)


def test_an_empty_tree_can_be_flushed() -> None:
    cache = make_cache(4, 4)
    assert cache.flush() == 0
    assert_sound(cache)


def test_what_a_lease_pins_survives_a_flush_and_is_freed_when_the_lease_ends() -> None:
    cache = make_cache(16, 4)
    store(cache, ids(24, 1))
    lease = lease_of(cache, ids(13, 1))
    blocks = list(lease.blocks())
    assert cache.flush() == 3
    assert list(lease.blocks()) == blocks
    assert cache.available_blocks == 13
    assert_sound(cache, [lease])
    cache.release(lease)
    assert cache.pool.free_blocks == 16
    assert cache.detached == []
    assert_sound(cache)


def test_new_requests_start_cold_after_a_flush() -> None:
    cache = make_cache(16, 4)
    old = hold(cache, ids(16, 1))
    cache.flush()
    assert covered(cache, ids(17, 1)) == 0
    new = hold(cache, ids(16, 1))
    assert not set(new.blocks()) & set(old.blocks())
    assert_sound(cache, [old, new])
    cache.release(old)
    assert stored(cache, ids(16, 1)) == 16
    assert_sound(cache, [new])


def test_a_detached_tree_shrinks_lease_by_lease() -> None:
    cache = make_cache(32, 4)
    store(cache, ids(16, 1))
    leases = [lease_of(cache, ids(17, 1)), lease_of(cache, ids(9, 1))]
    leases.append(hold(cache, [*ids(8, 1), *ids(8, 2)]))
    cache.flush()
    assert cache.pool.tree_blocks == 6
    for left in (4, 4, 0):
        cache.release(leases.pop(0))
        assert cache.pool.tree_blocks == left
        assert_sound(cache, leases)
    assert cache.detached == []


def test_a_detached_tree_is_never_evicted() -> None:
    cache = make_cache(8, 4)
    lease = hold(cache, ids(16, 1))
    cache.flush()
    store(cache, ids(8, 2))
    assert cache.evict(8) == 2
    assert cache.allocate(5) is None
    assert_sound(cache, [lease])


def test_a_request_that_runs_through_a_flush_publishes_into_its_own_old_tree() -> None:
    cache = make_cache(16, 4)
    lease = hold(cache, ids(8, 1))
    cache.flush()
    publish(cache, lease, ids(16, 1))
    assert lease.num_tokens == 16
    assert covered(cache, ids(17, 1)) == 0
    assert_sound(cache, [lease])
    cache.release(lease)
    assert cache.pool.free_blocks == 16
    assert cache.detached == []
    assert_sound(cache)


def test_a_lease_of_nothing_publishes_into_the_tree_it_was_taken_from() -> None:
    cache = make_cache(16, 4)
    early, late = lease_of(cache, ids(8, 1)), lease_of(cache, ids(8, 1))
    cache.flush()
    publish(cache, early, ids(8, 1))
    assert covered(cache, ids(9, 1)) == 0
    assert_sound(cache, [early, late])
    cache.release(early)
    assert cache.detached == []
    publish(cache, late, ids(8, 1))  # the old tree was empty again in between
    assert_sound(cache, [late])
    cache.release(late)
    assert cache.pool.free_blocks == 16
    assert cache.detached == []


def test_two_requests_share_what_they_publish_into_an_old_tree() -> None:
    cache = make_cache(16, 4)
    one, two = lease_of(cache, ids(12, 1)), lease_of(cache, ids(12, 1))
    cache.flush()
    publish(cache, one, ids(12, 1))
    table = cache.publish(two, pack(ids(8, 1)), take(cache, 2))
    assert list(table) == list(one.blocks()[:2])
    assert cache.counters.duplicate_blocks == 2
    assert_sound(cache, [one, two])
    cache.release(one)
    assert cache.pool.tree_blocks == 2
    assert_sound(cache, [two])
    cache.release(two)
    assert_sound(cache)


def test_flushes_in_a_row_keep_a_tree_for_each_that_is_still_pinned() -> None:
    cache = make_cache(32, 4)
    leases = []
    for seed in range(4):
        leases.append(hold(cache, ids(8, seed)))
        cache.flush()
    assert len(cache.detached) == 4
    assert_sound(cache, leases)
    while leases:
        cache.release(leases.pop(1 if len(leases) > 1 else 0))
        assert len(cache.detached) == len(leases)
        assert_sound(cache, leases)
    assert cache.pool.free_blocks == 32


def test_a_lease_of_a_flushed_tree_is_released_once() -> None:
    cache = make_cache(8, 4)
    lease = hold(cache, ids(8, 1))
    cache.flush()
    store(cache, ids(8, 1))
    cache.release(lease)
    cache.release(lease)
    assert cache.counters.repeated_releases == 1
    assert stored(cache, ids(8, 1)) == 8
    assert_sound(cache)
