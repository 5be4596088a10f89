from __future__ import annotations

import pytest

from radix_engine.cache import RULES, Cause, MatchEnd, PrefixCache, Reason
from tests.cache.requests import Clock, begin, reach, serve, why
from tests.cache.trees import assert_sound, hold, ids, lease_of, make_cache, store, take

TTL = 10.0


@pytest.fixture(params=list(RULES))
def cache(request: pytest.FixtureRequest, clock: Clock) -> PrefixCache:
    return make_cache(64, 4, clock=clock, ttl=TTL, eviction=request.param)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_run_leaves_once_it_has_been_idle_for_longer_than_the_limit(
    cache: PrefixCache, clock: Clock
) -> None:
    store(cache, ids(16, 1))
    clock.now = TTL
    assert cache.expire() == 0
    clock.now = TTL + 0.001
    assert cache.expire() == 4
    assert_sound(cache)
    assert cache.pool.free_blocks == 64
    assert (cache.counters.expired_blocks, cache.counters.evicted_blocks) == (4, 0)
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.EVICTED, 0, Cause.TTL, 16)


def test_a_hit_refreshes_what_it_was_served_and_no_more(cache: PrefixCache, clock: Clock) -> None:
    store(cache, ids(16, 1))
    store(cache, ids(16, 2))
    clock.now = 8.0
    cache.release(lease_of(cache, ids(9, 1)))
    clock.now = 12.0
    assert cache.expire() == 2 + 4
    assert_sound(cache)
    assert (reach(cache, ids(16, 1)), reach(cache, ids(16, 2))) == (8, 0)
    clock.now = 18.0
    assert cache.expire() == 0
    clock.now = 18.5
    assert cache.expire() == 2


def test_a_look_up_alone_refreshes_nothing(cache: PrefixCache, clock: Clock) -> None:
    store(cache, ids(16, 1))
    clock.now = 8.0
    assert reach(cache, ids(16, 1)) == 16
    clock.now = 12.0
    assert cache.expire() == 4


def test_a_run_in_use_never_expires_and_its_idle_time_begins_at_the_end_of_its_use(
    cache: PrefixCache, clock: Clock
) -> None:
    lease = hold(cache, ids(16, 1))
    clock.now = 50.0
    assert cache.expire() == 0
    assert_sound(cache, [lease])
    cache.release(lease)
    clock.now = 60.0
    assert cache.expire() == 0
    clock.now = 60.5
    assert cache.expire() == 4


def test_a_head_stays_as_long_as_one_of_its_branches(cache: PrefixCache, clock: Clock) -> None:
    head = ids(8, 1)
    serve(cache, [*head, *ids(8, 2)])
    clock.now = 6.0
    serve(cache, [*head, *ids(8, 3)])
    clock.now = 11.0
    assert cache.expire() == 2
    assert reach(cache, [*head, *ids(8, 3)]) == 16
    clock.now = 17.0
    assert cache.expire() == 4
    assert_sound(cache)
    assert cache.pool.tree_blocks == 0


def test_without_a_limit_nothing_expires(clock: Clock) -> None:
    cache = make_cache(64, 4, clock=clock)
    store(cache, ids(16, 1))
    clock.now = 1e9
    assert cache.expire() == 0
    assert reach(cache, ids(16, 1)) == 16


@pytest.mark.parametrize("ttl", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl must be greater than 0 seconds"):
        make_cache(64, 4, ttl=ttl)


def test_one_call_does_a_bounded_piece_of_work_and_the_next_ones_the_rest(clock: Clock) -> None:
    cache = make_cache(1000, 1, clock=clock, ttl=TTL)
    for n in range(1000):
        cache.release(begin(cache, [n]))
    clock.now = 11.0
    freed = []
    while (blocks := cache.expire()) > 0:
        freed.append(blocks)
        assert_sound(cache)
    assert sum(freed) == 1000
    assert max(freed) <= 256


def test_the_longest_idle_go_first_when_there_are_more_than_one_call_takes(clock: Clock) -> None:
    cache = make_cache(400, 1, clock=clock, ttl=TTL)
    for n in range(400):
        clock.now = n / 1000
        cache.release(begin(cache, [n]))
    clock.now = 20.0
    cache.expire()
    left = [n for n in range(400) if reach(cache, [n])]
    assert left == list(range(400 - len(left), 400))
    assert left


def test_expired_blocks_can_be_allocated_and_nothing_needs_evicting(
    cache: PrefixCache, clock: Clock
) -> None:
    for seed in range(4):
        store(cache, ids(64, seed))
    clock.now = 11.0
    assert cache.expire() == 64
    blocks = take(cache, 64)
    assert cache.counters.evicted_blocks == 0
    assert_sound(cache, [], [blocks])


def test_an_expired_run_that_is_stored_again_lives_its_time_anew(
    cache: PrefixCache, clock: Clock
) -> None:
    store(cache, ids(16, 1))
    clock.now = 11.0
    cache.expire()
    serve(cache, ids(16, 1))
    clock.now = 21.0
    assert cache.expire() == 0
    assert reach(cache, ids(16, 1)) == 16
    clock.now = 21.5
    assert cache.expire() == 4
    assert_sound(cache)


def test_what_was_partly_evicted_expires_too(cache: PrefixCache, clock: Clock) -> None:
    store(cache, ids(16, 1))
    cache.evict(1)
    clock.now = 11.0
    assert cache.expire() == 3
    assert_sound(cache)


def test_a_flushed_run_in_use_does_not_expire(cache: PrefixCache, clock: Clock) -> None:
    lease = hold(cache, ids(16, 1))
    store(cache, ids(8, 2))
    cache.flush()
    clock.now = 11.0
    assert cache.expire() == 0
    assert_sound(cache, [lease])
