from __future__ import annotations

import pytest

from radix_engine.cache import (
    Cause,
    MatchEnd,
    Namespace,
    PrefixCache,
    Reason,
    pack,
)
from tests.cache.requests import Clock, begin, reach, serve, why
from tests.cache.trees import assert_sound, ids, make_cache, take

A, A_SALTED, B = Namespace(tenant="a"), Namespace(tenant="a", salt="s"), Namespace(tenant="b")
SIZE = 4


def cache_of(*prompts: list[int], partial: bool = False, **options: object) -> PrefixCache:
    cache = make_cache(64, SIZE, partial_blocks=partial, **options)
    for prompt in prompts:
        serve(cache, prompt)
    return cache


# Cold


@pytest.mark.parametrize("partial", [False, True])
def test_a_prompt_that_shares_nothing_is_cold(partial: bool) -> None:
    assert why(cache_of(partial=partial), ids(12, 1)) == MatchEnd(Reason.COLD, 0)
    cache = cache_of(ids(12, 1), partial=partial)
    assert why(cache, ids(12, 2)) == MatchEnd(Reason.COLD, 0)


@pytest.mark.parametrize("partial", [False, True])
def test_what_goes_on_behind_the_end_of_a_stored_branch_is_cold(partial: bool) -> None:
    cache = cache_of(ids(8, 1), partial=partial)
    assert why(cache, [*ids(8, 1), *ids(9, 2)]) == MatchEnd(Reason.COLD, 8)


# Full


@pytest.mark.parametrize(("length", "position"), [(8, 4), (9, 8), (12, 8), (13, 12)])
def test_all_whole_blocks_before_the_last_token_are_full(length: int, position: int) -> None:
    cache = cache_of(ids(24, 1))
    assert why(cache, ids(length, 1)) == MatchEnd(Reason.FULL, position)


@pytest.mark.parametrize("length", [8, 9, 10, 12, 13])
def test_with_partial_blocks_all_but_the_last_token_is_full(length: int) -> None:
    cache = cache_of(ids(24, 1), partial=True)
    assert why(cache, ids(length, 1)) == MatchEnd(Reason.FULL, length - 1)


def test_a_prompt_whose_rest_fills_no_block_is_full() -> None:
    cache = cache_of(ids(8, 1))
    assert why(cache, [*ids(8, 1), 499, 498]) == MatchEnd(Reason.FULL, 8)


# Short


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4])
def test_a_prompt_without_a_whole_block_before_its_last_token_is_short(length: int) -> None:
    cache = make_cache(8, SIZE)
    assert why(cache, ids(length, 1)) == MatchEnd(Reason.SHORT, 0)


def test_fifteen_shared_tokens_are_short_of_a_block_of_sixteen() -> None:
    cache = make_cache(16, 16)
    serve(cache, ids(48, 1))
    prompt = [*ids(15, 1), *ids(33, 2)]
    assert reach(cache, prompt) == 0
    assert why(cache, prompt) == MatchEnd(Reason.SHORT, 15)


def test_with_partial_blocks_fifteen_shared_tokens_are_served_and_diverge() -> None:
    cache = make_cache(16, 16, partial_blocks=True)
    serve(cache, ids(48, 1))
    prompt = [*ids(15, 1), *ids(33, 2)]
    match = cache.match(pack(prompt))
    assert (match.num_tokens, match.copy_rows) == (15, 15)
    assert why(cache, prompt) == MatchEnd(Reason.DIVERGED, 15, branch_tokens=48)


# Diverged


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("position", [4, 5, 7, 8, 10, 12, 15])
def test_a_prompt_that_leaves_a_branch_tells_the_token_and_the_branches_length(
    position: int, partial: bool
) -> None:
    cache = cache_of(ids(16, 1), partial=partial)
    prompt = [*ids(position, 1), *ids(9, 2)]
    assert why(cache, prompt) == MatchEnd(Reason.DIVERGED, position, branch_tokens=16)
    served = position if partial else position // SIZE * SIZE
    assert cache.match(pack(prompt)).num_tokens == served


def test_the_branch_that_is_told_is_the_one_that_shares_most() -> None:
    head = ids(8, 1)
    cache = cache_of(
        [*head, *ids(4, 2)],
        [*head, 50, 51, 52, 53, *ids(8, 5)],
        [*head, 50, 51, 60, 61, *ids(20, 6)],
    )
    for last, length in (([52, 0], 20), ([60, 0], 32)):
        end = why(cache, [*head, 50, 51, *last, 0])
        assert end == MatchEnd(Reason.DIVERGED, 11, branch_tokens=length)


@pytest.mark.parametrize("children", [3, 16, 17, 40])
def test_the_nearest_of_many_branches_is_found(children: int) -> None:
    head = ids(4, 1)
    branches = [[*head, 1000 + n, 2000 + n, 7, 7, *ids(4 * (n % 5), 3)] for n in range(children)]
    cache = make_cache(512, SIZE)
    for branch in branches:
        serve(cache, branch)
    for n, branch in enumerate(branches):
        prompt = [*branch[:6], 8, 8, 8]
        assert why(cache, prompt) == MatchEnd(Reason.DIVERGED, 6, branch_tokens=8 + 4 * (n % 5))


def test_a_branch_that_forks_is_told_up_to_the_fork() -> None:
    head = ids(8, 1)
    cache = cache_of([*head, *ids(4, 2)], [*head, *ids(8, 3)])
    assert why(cache, [*ids(5, 1), 499, 499, 499, 499]) == MatchEnd(
        Reason.DIVERGED, 5, branch_tokens=8
    )


@pytest.mark.parametrize("partial", [False, True])
def test_what_was_evicted_of_a_branch_does_not_count_to_its_length(partial: bool) -> None:
    cache = cache_of(ids(24, 1), partial=partial)
    cache.evict(2)
    prompt = [*ids(6, 1), *ids(8, 9)]
    assert why(cache, prompt) == MatchEnd(Reason.DIVERGED, 6, branch_tokens=16)
    cache.release(begin(cache, [*ids(8, 1), *ids(12, 2)]))
    cache.evict(2)  # the old branch; the new one goes on alone behind the fork
    assert why(cache, prompt) == MatchEnd(Reason.DIVERGED, 6, branch_tokens=20)


def test_a_branch_point_whose_last_used_branch_is_gone_still_tells_of_the_other() -> None:
    cache = make_cache(64, SIZE, eviction="priority")
    head = ids(8, 1)
    serve(cache, [*head, *ids(12, 2)], priority=5)
    serve(cache, [*head, *ids(4, 3)])
    cache.evict(1)
    assert why(cache, [*head, *ids(9, 4)]) == MatchEnd(Reason.DIVERGED, 8, branch_tokens=20)


# Evicted


@pytest.mark.parametrize("left", [0, 1, 3])
@pytest.mark.parametrize("partial", [False, True])
def test_an_evicted_rest_is_told_from_one_never_seen(left: int, partial: bool) -> None:
    cache = cache_of(ids(16, 1), partial=partial)
    cache.evict(4 - left)
    assert_sound(cache)
    end = why(cache, [*ids(16, 1), 0])
    position = left * SIZE
    assert end == MatchEnd(Reason.EVICTED, position, Cause.CAPACITY, lost_tokens=16 - position)


def test_only_the_tokens_that_the_prompt_shares_were_lost() -> None:
    cache = cache_of(ids(16, 1))
    cache.evict(4)
    assert why(cache, [*ids(8, 1), *ids(8, 2)]) == MatchEnd(
        Reason.EVICTED, 0, Cause.CAPACITY, lost_tokens=8
    )
    assert why(cache, [*ids(3, 1), *ids(8, 2)]) == MatchEnd(Reason.COLD, 0)


def test_the_last_token_of_an_evicted_prompt_could_not_have_been_served() -> None:
    cache = cache_of(ids(16, 1))
    cache.evict(4)
    assert why(cache, ids(16, 1)).lost_tokens == 12


def test_rows_of_another_branch_shorten_what_was_lost() -> None:
    head = ids(4, 1)
    cache = cache_of([*head, 50, 51, 52, 53, 54, 55, 56, 57], partial=True)
    serve(cache, [*head, 50, 51, 60, 61])
    cache.evict(2)  # the first branch
    prompt = [*head, 50, 51, 52, 53, 54, 55, 56, 57, 0]
    assert cache.match(pack(prompt)).num_tokens == 6
    assert why(cache, prompt) == MatchEnd(Reason.EVICTED, 6, Cause.CAPACITY, lost_tokens=6)


@pytest.mark.parametrize(
    ("cause", "seconds"), [(Cause.CAPACITY, 0.0), (Cause.TTL, 11.0), (Cause.FLUSH, 0.0)]
)
def test_a_reason_names_what_took_the_run(cause: Cause, seconds: float) -> None:
    clock = Clock()
    cache = cache_of(ids(16, 1), clock=clock, ttl=10.0)
    clock.now = seconds
    if cause is Cause.CAPACITY:
        assert cache.evict(4) == 4
    elif cause is Cause.TTL:
        assert cache.expire() == 4
    else:
        assert cache.flush() == 4
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.EVICTED, 0, cause, lost_tokens=16)


def test_the_cause_is_that_of_the_first_block_that_is_missing() -> None:
    clock = Clock()
    cache = cache_of(ids(8, 1), [*ids(8, 1), *ids(8, 2)], clock=clock, ttl=10.0)
    clock.now = 5.0
    serve(cache, [*ids(8, 1), 0])
    clock.now = 11.0
    assert cache.expire() == 2  # the lower part
    prompt = [*ids(8, 1), *ids(8, 2), 0]
    assert why(cache, prompt) == MatchEnd(Reason.EVICTED, 8, Cause.TTL, lost_tokens=8)
    assert cache.evict(1) == 1  # the end of the upper one
    assert why(cache, prompt) == MatchEnd(Reason.EVICTED, 4, Cause.CAPACITY, lost_tokens=12)
    cache.flush()
    assert why(cache, prompt) == MatchEnd(Reason.EVICTED, 0, Cause.FLUSH, lost_tokens=16)


def test_a_public_path_that_lost_its_end_tells_what_took_that() -> None:
    clock = Clock()
    cache = make_cache(64, SIZE, clock=clock, ttl=10.0)
    cache.mark_public(pack(ids(8, 1)))
    prompt = [*ids(8, 1), *ids(8, 2), 0]
    serve(cache, prompt, A)
    clock.now = 5.0
    serve(cache, [*ids(8, 1), 0], B)
    clock.now = 11.0
    assert cache.expire() == 2
    assert why(cache, prompt, A) == MatchEnd(Reason.EVICTED, 8, Cause.TTL, lost_tokens=8)
    assert why(cache, prompt, B) == MatchEnd(Reason.COLD, 8)
    cache.evict(1)
    assert why(cache, prompt, A) == MatchEnd(Reason.EVICTED, 4, Cause.CAPACITY, lost_tokens=12)
    assert why(cache, prompt, B) == MatchEnd(Reason.EVICTED, 4, Cause.CAPACITY, lost_tokens=4)


def test_what_is_forgotten_is_cold_again() -> None:
    cache = make_cache(8, SIZE, ghost_blocks=2)
    serve(cache, ids(16, 1))
    cache.evict(4)
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.EVICTED, 0, Cause.CAPACITY, lost_tokens=8)
    none = make_cache(8, SIZE, ghost_blocks=0)
    serve(none, ids(16, 1))
    none.evict(4)
    assert why(none, ids(17, 1)) == MatchEnd(Reason.COLD, 0)


# In flight


def test_a_block_that_is_being_computed_is_attached_to_and_not_copied_from() -> None:
    cache = cache_of(ids(8, 1), partial=True)
    lease = begin(cache, ids(8, 1))
    run = ids(8, 2)
    assert cache.announce(lease, pack(run), take(cache, 2))
    whole = [*ids(8, 1), *run, 0]
    assert why(cache, whole) == MatchEnd(Reason.FULL, 16)
    part = [*ids(8, 1), *run[:6], 0, 0, 0]
    assert why(cache, part) == MatchEnd(Reason.IN_FLIGHT, 12)
    assert why(cache, [*ids(8, 1), *run[:3], 0, 0]) == MatchEnd(Reason.IN_FLIGHT, 8)
    assert why(cache, [*ids(8, 1), *ids(9, 7)]).reason is not Reason.IN_FLIGHT
    cache.commit(lease)
    assert why(cache, part) == MatchEnd(Reason.DIVERGED, 14, branch_tokens=16)
    assert_sound(cache, [lease])


def test_what_was_withdrawn_was_never_stored() -> None:
    cache = cache_of(ids(8, 1))
    lease = begin(cache, ids(8, 1))
    assert cache.announce(lease, pack(ids(8, 2)), take(cache, 2))
    cache.release(lease)
    assert_sound(cache)
    assert why(cache, [*ids(8, 1), *ids(9, 2)]) == MatchEnd(Reason.COLD, 8)


def test_a_ghost_that_was_announced_again_and_withdrawn_is_evicted_as_before() -> None:
    cache = cache_of(ids(16, 1))
    cache.evict(2)
    lease = begin(cache, ids(9, 1))
    assert cache.announce(lease, pack(ids(16, 1)[8:]), take(cache, 2))
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.FULL, 16)
    cache.release(lease)
    assert_sound(cache)
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.EVICTED, 8, Cause.CAPACITY, lost_tokens=8)


def test_a_request_is_counted_once_however_often_it_is_looked_up() -> None:
    cache = cache_of(ids(16, 1))
    cache.ends.clear()
    prompt = ids(17, 1)
    for _ in range(20):  # looked up at each step that could not admit it
        cache.explain(cache.match(pack(prompt)), pack(prompt))
    match = cache.match(pack(prompt))
    cache.account(match, pack(prompt))
    lease = cache.lease(match)
    cache.release(lease)  # preempted, and admitted again
    cache.release(cache.lease(cache.match(pack(prompt))))
    assert cache.ends == {Reason.FULL: 1}
    assert cache.hit_rate_curve()[1.0] == 16 / (16 + 17)


def test_random_prompts_are_never_hits() -> None:
    cache = make_cache(16, SIZE)
    for n in range(100):
        prompt = range(20 * n, 20 * n + 19)
        cache.release(begin(cache, list(prompt)))
    assert_sound(cache)
    assert cache.ends == {Reason.COLD: 100}
    assert set(cache.hit_rate_curve().values()) == {0.0}
