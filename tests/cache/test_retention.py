from __future__ import annotations

import pytest

from radix_engine.cache import (
    DEFAULT,
    RULES,
    Namespace,
    PrefixCache,
    Retention,
    RetentionRefused,
    dump,
    pack,
)
from tests.cache.requests import Clock, begin, reach, serve
from tests.cache.trees import assert_sound, hold, ids, lease_of, make_cache, store, take


def cache_of(num_blocks: int = 32, **options: object) -> PrefixCache:
    return make_cache(num_blocks, 4, **{"most_retained": 0.5, **options})


def retain(
    cache: PrefixCache,
    tokens: list[int],
    seconds: float | None = None,
    namespace: Namespace = DEFAULT,
) -> Retention:
    retention = cache.retain(pack(tokens), seconds, namespace)
    assert_sound(cache)
    return retention


def sweep(cache: PrefixCache, blocks: int) -> None:
    """One-off prompts of 2 blocks each."""
    for n in range(blocks // 2):
        cache.release(begin(cache, [10_000 + n, *ids(7, 3)]))
    assert_sound(cache)


@pytest.mark.parametrize("rule", list(RULES))
def test_a_prefix_that_is_retained_for_a_time_outlives_a_sweep_until_then(rule: str) -> None:
    clock = Clock()
    cache = cache_of(clock=clock, eviction=rule)
    tool_call = ids(40, 1)
    serve(cache, tool_call)
    retain(cache, tool_call, 30.0)
    clock.now = 10.0
    cache.expire()
    sweep(cache, 3 * 32)
    assert reach(cache, tool_call) == 40
    clock.now = 40.0
    cache.expire()
    assert cache.retained_blocks == 0
    assert_sound(cache)
    cache.evict(32)
    assert reach(cache, tool_call) == 0


@pytest.mark.parametrize("rule", list(RULES))
def test_a_prefix_that_is_retained_until_released_then_goes_like_any_other(rule: str) -> None:
    cache = cache_of(eviction=rule)
    serve(cache, ids(40, 1))
    retention = retain(cache, ids(40, 1))
    sweep(cache, 3 * 32)
    assert reach(cache, ids(40, 1)) == 40
    cache.release_retention(retention)
    assert_sound(cache)
    assert cache.retained_blocks == 0
    cache.release_retention(retention)
    assert_sound(cache)
    cache.evict(32)
    assert reach(cache, ids(40, 1)) == 0


def test_after_its_retention_a_run_is_as_old_as_its_last_use() -> None:
    cache = cache_of()
    for seed in (1, 2):
        serve(cache, ids(8, seed))
    retention = retain(cache, ids(8, 1))
    cache.release_retention(retention)
    cache.evict(2)
    assert (reach(cache, ids(8, 1)), reach(cache, ids(8, 2))) == (0, 8)


def test_a_refresh_lets_it_last_from_now() -> None:
    clock = Clock()
    cache = cache_of(clock=clock)
    serve(cache, ids(16, 1))
    retention = retain(cache, ids(16, 1), 10.0)
    clock.now = 8.0
    cache.retentions.refresh(retention, 10.0)
    for now, kept in ((10.0, 4), (17.9, 4), (18.0, 0)):
        clock.now = now
        cache.expire()
        assert cache.retained_blocks == kept
        assert_sound(cache)
    cache.retentions.refresh(retention, 10.0)
    assert len(cache.retentions) == cache.retained_blocks == 0


def test_more_than_the_cap_is_refused_and_says_what_to_do() -> None:
    cache = cache_of(16)
    serve(cache, ids(24, 1))
    serve(cache, ids(16, 2))
    retain(cache, ids(24, 1))
    with pytest.raises(RetentionRefused) as refused:
        cache.retain(pack(ids(12, 2)))
    assert str(refused.value) == (
        "retaining 12 tokens goes beyond what the limit of 32 leaves; release a retention, "
        "wait for one to end, or retain less"
    )
    assert cache.retained_blocks == 6
    assert_sound(cache)
    retain(cache, ids(8, 2))
    assert cache.retained_blocks == 8


def test_what_is_retained_already_does_not_count_twice_towards_the_cap() -> None:
    cache = cache_of(16)
    serve(cache, ids(32, 1))
    for length in (32, 16, 32):
        retain(cache, ids(length, 1))
        assert cache.retained_blocks == 8


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    cache = cache_of()
    serve(cache, ids(16, 1))
    with pytest.raises(RetentionRefused, match="seconds must be greater than 0"):
        cache.retain(pack(ids(16, 1)), seconds)
    assert cache.retained_blocks == 0
    assert_sound(cache)


def test_what_is_not_stored_cannot_be_retained() -> None:
    cache = cache_of()
    for tokens in ([], ids(3, 1), ids(16, 1)):
        with pytest.raises(RetentionRefused, match="nothing of this prefix is stored"):
            cache.retain(pack(tokens))
    serve(cache, ids(16, 1))
    with pytest.raises(RetentionRefused, match="nothing of this prefix is stored"):
        cache.retain(pack(ids(16, 1)), namespace=Namespace(tenant="a"))
    assert retain(cache, [*ids(16, 1), *ids(8, 2)]).num_tokens == 16


@pytest.mark.parametrize("grown", [False, True])
def test_what_is_in_flight_is_not_retained(grown: bool) -> None:
    cache = cache_of()
    lease = begin(cache, ids(8, 1)) if grown else lease_of(cache, ids(8, 1))
    run = ids(16, 1)[lease.num_tokens :]
    assert cache.announce(lease, pack(run), take(cache, len(run) // 4))
    if grown:
        retention = cache.retain(pack(ids(16, 1)))
        assert retention.num_tokens == cache.retained_blocks * 4 == 8
    else:
        with pytest.raises(RetentionRefused, match="nothing of this prefix is computed yet"):
            cache.retain(pack(ids(16, 1)))
    assert_sound(cache, [lease])
    cache.release(lease)  # aborted in mid-step
    assert_sound(cache)
    assert reach(cache, ids(16, 1)) == cache.retained_blocks * 4


@pytest.mark.parametrize("rule", list(RULES))
def test_retained_blocks_go_last_and_no_allocation_fails_for_them(rule: str) -> None:
    cache = cache_of(eviction=rule)
    for seed in range(4):
        serve(cache, ids(32, seed))
    retention = retain(cache, ids(32, 0))
    blocks = take(cache, 24)
    assert reach(cache, ids(32, 0)) == 32
    blocks.extend(take(cache, 3))
    assert reach(cache, ids(32, 0)) == 20
    assert (cache.retained_blocks, retention.lost) == (5, False)
    assert_sound(cache, [], [blocks])
    blocks.extend(take(cache, 5))
    assert (cache.retained_blocks, retention.lost) == (0, True)
    assert_sound(cache, [], [blocks])
    cache.free(blocks)
    cache.release_retention(retention)
    assert_sound(cache)


def test_the_retained_prefix_used_longest_ago_goes_first_of_these() -> None:
    cache = cache_of(16, most_retained=1.0)
    for seed in (1, 2):
        serve(cache, ids(32, seed))
        retain(cache, ids(32, seed))
    cache.release(lease_of(cache, ids(33, 1)))
    cache.evict(8)
    assert (reach(cache, ids(32, 1)), reach(cache, ids(32, 2))) == (32, 0)
    assert_sound(cache)


def test_what_was_evicted_of_a_retained_run_is_not_retained_when_it_is_stored_again() -> None:
    cache = cache_of()
    serve(cache, ids(32, 1))
    retention = retain(cache, ids(32, 1))
    cache.evict(3)
    assert_sound(cache)
    serve(cache, ids(32, 1))
    assert reach(cache, ids(32, 1)) == 32
    assert cache.retained_blocks == 5
    cache.evict(3)
    assert reach(cache, ids(32, 1)) == 20
    cache.release_retention(retention)
    assert cache.retained_blocks == 0
    assert_sound(cache)


def test_a_run_stored_anew_after_its_retention_was_lost_is_not_retained() -> None:
    cache = cache_of()
    serve(cache, ids(16, 1))
    retention = retain(cache, ids(16, 1), 10.0)
    cache.evict(4)
    assert retention.lost
    serve(cache, ids(16, 1))
    assert cache.retained_blocks == len(cache.retentions) == 0
    cache.release_retention(retention)
    assert_sound(cache)
    assert reach(cache, ids(16, 1)) == 16


def test_retentions_of_one_path_hold_independently() -> None:
    cache = cache_of()
    serve(cache, ids(32, 1))
    long, short, again = (retain(cache, ids(length, 1)) for length in (32, 16, 16))
    assert cache.retained_blocks == 8
    cache.release_retention(long)
    assert_sound(cache)
    assert cache.retained_blocks == 4
    cache.evict(4)
    assert reach(cache, ids(32, 1)) == 16
    cache.release_retention(short)
    assert cache.retained_blocks == 4
    cache.release_retention(again)
    assert cache.retained_blocks == 0
    assert_sound(cache)


def test_retained_branches_retain_their_common_head_once() -> None:
    cache = cache_of()
    head = ids(16, 1)
    held = []
    for seed in (2, 3):
        serve(cache, [*head, *ids(8, seed)])
        held.append(retain(cache, [*head, *ids(8, seed)]))
    assert cache.retained_blocks == 4 + 2 + 2
    cache.release_retention(held[0])
    assert cache.retained_blocks == 4 + 2
    assert cache.evict(2) == 2
    assert reach(cache, [*head, *ids(8, 3)]) == 24
    assert_sound(cache)


@pytest.mark.parametrize("at", [4, 8, 12])
def test_a_split_keeps_both_halves_retained(at: int) -> None:
    cache = cache_of()
    serve(cache, ids(16, 1))
    retention = retain(cache, ids(16, 1))
    serve(cache, [*ids(at, 1), *ids(8, 2)])
    assert cache.retained_blocks == 4
    cache.evict(2)
    assert (reach(cache, ids(16, 1)), cache.pool.tree_blocks) == (16, 4)
    cache.evict((16 - at) // 4)
    assert (reach(cache, ids(16, 1)), retention.lost) == (at, False)
    assert retention.num_tokens == at
    assert_sound(cache)
    cache.release_retention(retention)
    assert cache.retained_blocks == 0
    assert_sound(cache)


def test_a_retained_run_does_not_grow_by_what_its_request_goes_on_to_store() -> None:
    cache = cache_of()
    lease = hold(cache, ids(16, 1))
    cache.retain(pack(ids(16, 1)))
    cache.publish(lease, pack(ids(24, 1)[16:]), take(cache, 2))
    assert cache.retained_blocks == 4
    assert_sound(cache, [lease])
    cache.release(lease)
    cache.evict(2)
    assert reach(cache, ids(24, 1)) == 16


def test_a_run_retained_while_in_use_stays_when_the_use_ends() -> None:
    cache = cache_of()
    lease = hold(cache, ids(16, 1))
    retention = cache.retain(pack(ids(16, 1)))
    cache.release(lease)
    assert_sound(cache)
    sweep(cache, 64)
    assert reach(cache, ids(16, 1)) == 16
    running = lease_of(cache, ids(17, 1))
    cache.release_retention(retention)
    assert_sound(cache, [running])
    cache.evict(32)
    assert reach(cache, ids(16, 1)) == 16


def test_a_retained_run_does_not_expire_until_its_retention_ends() -> None:
    clock = Clock()
    cache = cache_of(clock=clock, ttl=5.0)
    serve(cache, ids(16, 1))
    retain(cache, ids(16, 1), 20.0)
    clock.now = 19.0
    assert cache.expire() == 0
    clock.now = 20.0
    assert cache.expire() == 4
    assert_sound(cache)


def test_a_flush_ends_all_retentions() -> None:
    cache = cache_of()
    serve(cache, ids(16, 1))
    running = hold(cache, ids(16, 2))
    held = [cache.retain(pack(ids(16, seed)), seconds) for seed, seconds in ((1, None), (2, 9.0))]
    cache.flush()
    assert (cache.retained_blocks, len(cache.retentions)) == (0, 0)
    assert_sound(cache, [running])
    serve_again = hold(cache, ids(16, 1))
    for retention in held:
        assert retention.lost
        cache.release_retention(retention)
        cache.retentions.refresh(retention, 5.0)
    assert cache.retained_blocks == 0
    assert_sound(cache, [running, serve_again])


def test_a_retention_across_a_public_path_keeps_both_parts() -> None:
    cache = cache_of()
    cache.mark_public(pack(ids(8, 1)))
    space = Namespace(tenant="a")
    prompt = [*ids(8, 1), *ids(8, 2)]
    serve(cache, prompt, space)
    retention = retain(cache, prompt, None, space)
    sweep(cache, 64)
    assert reach(cache, prompt, space) == 16
    assert cache.retained_blocks == 4
    while reach(cache, prompt, space) == 16:  # the others, and then what is last of it
        cache.evict(1)
    cache.evict(1)
    assert_sound(cache)
    assert (cache.retained_blocks, retention.lost, retention.num_tokens) == (2, False, 8)
    assert cache.pool.tree_blocks == 2
    cache.evict(2)
    assert (cache.retained_blocks, retention.lost) == (0, True)
    assert_sound(cache)


def test_the_dump_shows_what_is_retained_and_for_how_long() -> None:
    clock = Clock()
    cache = cache_of(clock=clock)
    serve(cache, ids(32, 1))
    serve(cache, ids(8, 2))
    retain(cache, ids(16, 1), 30.0)
    retain(cache, ids(16, 1), 10.0)
    retain(cache, ids(8, 1))
    clock.now = 4.0
    shown = {node.head[0]: node for node in dump(cache, clock.now, head_tokens=1) if node.head}
    first, second, rest, other = ids(32, 1)[0], ids(32, 1)[8], ids(32, 1)[16], ids(8, 2)[0]
    assert (shown[first].retained, shown[first].retained_s) == (3, None)
    assert (shown[second].retained, shown[second].retained_s) == (2, 26.0)
    assert (shown[rest].retained, shown[other].retained) == (0, 0)
    assert len(shown) == 4


def test_a_refreshed_retention_lasts_from_now_and_a_time_that_is_none_is_refused() -> None:
    clock = Clock()
    cache = make_cache(16, 4, clock=clock)
    store(cache, ids(8, 1))
    retention = cache.retain(pack(ids(8, 1)), seconds=10.0)
    clock.now += 8.0
    cache.refresh_retention(retention, 10.0)
    clock.now += 8.0
    cache.expire()
    assert not retention.released
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(RetentionRefused, match="seconds must be greater than 0"):
            cache.refresh_retention(retention, seconds)
    clock.now += 3.0
    cache.expire()
    assert retention.released
    assert cache.retained_blocks == 0
    assert_sound(cache)
