"""Why a match ended, for prompts of about a block: what can be served of them differs with every
token, and with partial blocks on and off."""

from __future__ import annotations

import pytest

from radix_engine.cache import Cause, MatchEnd, Namespace, PrefixCache, Reason, pack
from tests.cache.requests import serve, why
from tests.cache.steps import announce, announce_after
from tests.cache.trees import assert_sound, hold, ids, make_cache, store

SIZE = 4
A, A_SALTED = Namespace(tenant="a"), Namespace(tenant="a", salt="s")
END = Reason


def cache_of(prompt: list[int], *, partial: bool) -> PrefixCache:
    cache = make_cache(32, SIZE, partial_blocks=partial)
    store(cache, prompt)
    return cache


def told(cache: PrefixCache, prompt: list[int]) -> tuple[Reason, int]:
    end = why(cache, prompt)
    assert_sound(cache)
    return end.reason, end.position


# Reason and position by the prompt's length, from 0 tokens on.
WHOLLY_STORED = {
    True: [
        *[(END.SHORT, 0), (END.SHORT, 0), (END.FULL, 1), (END.FULL, 2), (END.FULL, 3)],
        *[(END.FULL, 4), (END.FULL, 5), (END.FULL, 6), (END.FULL, 7), (END.FULL, 8)],
    ],
    False: [
        *[(END.SHORT, 0), (END.SHORT, 0), (END.SHORT, 1), (END.SHORT, 2), (END.SHORT, 3)],
        *[(END.FULL, 4), (END.FULL, 4), (END.FULL, 4), (END.FULL, 4), (END.FULL, 8)],
    ],
}
ONE_BLOCK_STORED = {  # the first; what follows it never was
    True: [
        *WHOLLY_STORED[True][:6],
        *[(END.FULL, 4), (END.FULL, 4), (END.COLD, 4), (END.COLD, 4)],
    ],
    False: [*WHOLLY_STORED[False][:9], (END.COLD, 4)],
}
NOTHING_STORED = {
    True: [(END.SHORT, 0)] * 4 + [(END.COLD, 0)] * 6,
    False: [(END.SHORT, 0)] * 5 + [(END.COLD, 0)] * 5,
}


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("length", range(10))
def test_a_prompt_is_full_where_all_of_it_is_served_that_can_be(length: int, partial: bool) -> None:
    for stored, expected in ((24, WHOLLY_STORED), (4, ONE_BLOCK_STORED), (0, NOTHING_STORED)):
        cache = cache_of(ids(stored, 1), partial=partial)
        prompt = ids(min(length, stored), 1) + ids(length - min(length, stored), 2)
        assert told(cache, prompt) == expected[partial][length]


@pytest.mark.parametrize(
    ("length", "partial", "expected"),
    [
        (3, True, MatchEnd(END.SHORT, 0)),
        (4, True, MatchEnd(END.EVICTED, 0, Cause.CAPACITY, lost_tokens=3)),
        (5, True, MatchEnd(END.EVICTED, 0, Cause.CAPACITY, lost_tokens=4)),
        (8, True, MatchEnd(END.EVICTED, 0, Cause.CAPACITY, lost_tokens=7)),
        (3, False, MatchEnd(END.SHORT, 0)),
        (4, False, MatchEnd(END.SHORT, 0)),
        (5, False, MatchEnd(END.EVICTED, 0, Cause.CAPACITY, lost_tokens=4)),
        (8, False, MatchEnd(END.EVICTED, 0, Cause.CAPACITY, lost_tokens=4)),
    ],
)
def test_of_an_evicted_run_only_what_could_be_served_is_lost(
    length: int, partial: bool, expected: MatchEnd
) -> None:
    cache = cache_of(ids(8, 1), partial=partial)
    cache.evict(2)
    assert why(cache, ids(length, 1)) == expected


@pytest.mark.parametrize(
    ("length", "partial", "expected"),
    [
        (7, True, MatchEnd(END.FULL, 4)),
        (8, True, MatchEnd(END.EVICTED, 4, Cause.CAPACITY, lost_tokens=3)),
        (9, True, MatchEnd(END.EVICTED, 4, Cause.CAPACITY, lost_tokens=4)),
        (7, False, MatchEnd(END.FULL, 4)),
        (8, False, MatchEnd(END.FULL, 4)),
        (9, False, MatchEnd(END.EVICTED, 4, Cause.CAPACITY, lost_tokens=4)),
    ],
)
def test_a_prompt_whose_last_block_was_evicted_is_full_only_where_none_of_it_can_be_served(
    length: int, partial: bool, expected: MatchEnd
) -> None:
    cache = cache_of(ids(8, 1), partial=partial)
    cache.evict(1)
    assert why(cache, ids(length, 1)) == expected


def test_rows_of_another_block_shorten_what_was_lost_of_the_last_one() -> None:
    cache = cache_of([*ids(4, 1), 50, 51, 52, 53], partial=True)
    store(cache, [*ids(4, 1), 50, 60, 61, 62])
    cache.evict(1)  # the first one's end
    end = why(cache, [*ids(4, 1), 50, 51, 52, 53])
    assert end == MatchEnd(END.EVICTED, 5, Cause.CAPACITY, lost_tokens=2)


@pytest.mark.parametrize(
    ("shared", "length", "with_rows", "without"),
    [
        (1, 3, (END.SHORT, 1), (END.SHORT, 1)),
        (2, 3, (END.FULL, 2), (END.SHORT, 2)),
        (2, 4, (END.DIVERGED, 2), (END.SHORT, 2)),
        (3, 4, (END.FULL, 3), (END.SHORT, 3)),
        (3, 5, (END.DIVERGED, 3), (END.SHORT, 3)),
        (6, 7, (END.FULL, 6), (END.FULL, 4)),
        (6, 8, (END.DIVERGED, 6), (END.FULL, 4)),
        (7, 8, (END.FULL, 7), (END.FULL, 4)),
    ],
)
def test_a_prompt_that_leaves_a_branch_has_diverged_only_where_more_could_be_served(
    shared: int, length: int, with_rows: tuple[Reason, int], without: tuple[Reason, int]
) -> None:
    prompt = [*ids(shared, 1), *ids(length - shared, 2)]
    assert told(cache_of(ids(12, 1), partial=True), prompt) == with_rows
    assert told(cache_of(ids(12, 1), partial=False), prompt) == without


@pytest.mark.parametrize("partial", [True, False])
def test_a_last_block_in_flight_is_waited_for_only_where_rows_of_it_can_be_served(
    partial: bool,
) -> None:
    cache = make_cache(32, SIZE, partial_blocks=partial)
    first = announce(cache, ids(4, 3))
    second = hold(cache, ids(4, 1))
    assert announce_after(cache, second, ids(8, 1))
    assert why(cache, ids(1, 3)) == MatchEnd(END.SHORT, 0)
    one, two = (why(cache, prompt) for prompt in (ids(4, 3), ids(8, 1)))
    assert one == MatchEnd(END.IN_FLIGHT if partial else END.SHORT, 0)
    assert two == MatchEnd(END.IN_FLIGHT if partial else END.FULL, 4)
    for lease in (first, second):
        cache.commit(lease)
    assert told_all(cache, [ids(4, 3), ids(8, 1)]) == (
        [(END.FULL, 3), (END.FULL, 7)] if partial else [(END.SHORT, 3), (END.FULL, 4)]
    )
    assert_sound(cache, [first, second])


def test_a_last_block_in_flight_among_many_branches_is_not_taken_for_an_evicted_one() -> None:
    cache = make_cache(64, SIZE, partial_blocks=True)
    for branch in range(20):
        store(cache, [*ids(4, 1), 900 + branch, 0, 0, 0])
    prompt = [*ids(4, 1), 990, 0, 0, 0]
    owner = announce(cache, prompt)
    assert why(cache, prompt).reason not in (END.EVICTED, END.FULL)
    cache.commit(owner)
    assert why(cache, prompt) == MatchEnd(END.FULL, 7)
    assert_sound(cache, [owner])


def told_all(cache: PrefixCache, prompts: list[list[int]]) -> list[tuple[Reason, int]]:
    return [(end.reason, end.position) for end in (why(cache, prompt) for prompt in prompts)]


@pytest.mark.parametrize("partial", [True, False])
def test_a_prompt_that_can_be_served_nothing_is_short_whatever_others_store(partial: bool) -> None:
    cache = make_cache(32, SIZE, partial_blocks=partial)
    serve(cache, ids(8, 1), A)
    assert why(cache, ids(4, 1), A_SALTED) == MatchEnd(END.NAMESPACE if partial else END.SHORT, 0)
    assert why(cache, ids(5, 1), A_SALTED) == MatchEnd(END.NAMESPACE, 0)


@pytest.mark.parametrize("evicted", [0, 1])
@pytest.mark.parametrize("partial", [True, False])
def test_of_a_public_path_whole_blocks_are_all_that_can_be_served(
    partial: bool, evicted: int
) -> None:
    cache = make_cache(32, SIZE, partial_blocks=partial)
    cache.mark_public(pack(ids(8, 1)))
    serve(cache, ids(8, 1), A)
    cache.evict(evicted)
    assert why(cache, ids(8, 1), A) == MatchEnd(END.FULL, 4)
    assert why(cache, ids(4, 1), A) == MatchEnd(END.SHORT, 0)
    if not evicted:
        end = why(cache, [*ids(8, 1), *ids(4, 2)], A)
        assert end == MatchEnd(END.COLD if partial else END.FULL, 8)
