"""Cached blocks that nobody uses for longer than the time to live."""

from __future__ import annotations

import pytest

from radix_engine.cache.flat import FlatCache
from tests.cache.flat.use import Clock, assert_sound, hold, ids, lease_of, store, stored


def test_idle_blocks_are_taken_after_the_time_to_live() -> None:
    clock = Clock()
    cache = FlatCache(8, clock=clock, ttl=10.0)
    store(cache, ids(32))
    clock.now = 10.0
    assert cache.expire() == 0
    clock.now = 10.5
    assert cache.expire() == 2
    assert stored(cache, ids(32)) == 0
    assert (cache.counters.expired_blocks, cache.counters.evicted_blocks) == (2, 0)
    assert cache.pool.free_blocks == 8
    assert_sound(cache)


def test_a_hit_starts_the_time_again() -> None:
    clock = Clock()
    cache = FlatCache(8, clock=clock, ttl=10.0)
    store(cache, ids(64))
    clock.now = 9.0
    cache.release(lease_of(cache, ids(33)))
    clock.now = 11.0
    assert cache.expire() == 2
    assert stored(cache, ids(64)) == 32
    clock.now = 19.5
    assert cache.expire() == 2


def test_blocks_in_use_do_not_expire_and_are_idle_from_their_release_on() -> None:
    clock = Clock()
    cache = FlatCache(8, clock=clock, ttl=10.0)
    lease = hold(cache, ids(32))
    clock.now = 100.0
    assert cache.expire() == 0
    cache.release(lease)
    clock.now = 110.0
    assert cache.expire() == 0
    clock.now = 111.0
    assert cache.expire() == 2


def test_without_a_time_to_live_nothing_expires() -> None:
    clock = Clock()
    cache = FlatCache(8, clock=clock)
    store(cache, ids(32))
    clock.now = 1e9
    assert cache.expire() == 0


def test_an_expired_block_makes_matches_stale() -> None:
    clock = Clock()
    cache = FlatCache(8, clock=clock, ttl=10.0)
    store(cache, ids(32))
    version = cache.version
    assert cache.expire() == 0
    assert cache.version == version
    clock.now = 11.0
    cache.expire()
    assert cache.version > version


@pytest.mark.parametrize("ttl", [0.0, -1.0, float("nan")])
def test_a_time_to_live_is_positive(ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl must be more than 0 seconds"):
        FlatCache(8, ttl=ttl)
