"""Requests that want their prompt's values are served as far as these are known, and have all."""

from __future__ import annotations

import pytest

from radix_engine.cache import CacheMode, PrefixCache, Reason
from radix_engine.cache.flat import FlatCache
from scheduler import Limits, Request
from tests.checking_model import whole_blocks
from tests.scheduler.steps import fork_with
from tests.scheduler.valuing import ValuingBench, assert_has_its_values

SIZE = 4


def bench_of(*, whole: bool = False, blocks: int = 64, **limits: int) -> ValuingBench:
    make = whole_blocks if whole else PrefixCache
    return ValuingBench(blocks, SIZE, Limits(**limits), make_cache=make)


def ids(count: int, seed: int = 0) -> list[int]:
    return [(seed + 3 * index) % 50 for index in range(count)]


def reason(request: Request) -> tuple[Reason, int]:
    assert request.match_end is not None
    return request.match_end.reason, request.match_end.position


@pytest.mark.parametrize(
    ("length", "partial", "whole", "unknown"),
    [
        (1, 0, 0, 0),
        (3, 0, 0, 2),
        (4, 3, 0, 0),  # all four are stored, with their values
        (5, 3, 0, 1),  # the fifth's is not stored: it comes of the fourth
        (8, 7, 4, 0),
        (9, 7, 4, 1),
        (15, 11, 8, 3),
        (16, 15, 12, 0),
        (17, 15, 12, 1),
    ],
)
def test_a_repeated_prompt_is_served_up_to_the_token_before_the_first_unknown_value(
    length: int, partial: int, whole: int, unknown: int
) -> None:
    for bench, cached in ((bench_of(), partial), (bench_of(whole=True), whole)):
        bench.scored(ids(length))
        assert bench.model.valued == length - 1
        again = bench.scored(ids(length))
        assert again.cached_tokens == cached
        assert bench.model.valued == length - 1 + unknown
        bench.assert_stored_values_are_right()


@pytest.mark.parametrize(
    ("common", "partial", "whole"),
    [(1, 0, 0), (4, 3, 0), (5, 4, 4), (8, 7, 4), (9, 8, 8), (10, 9, 8), (12, 11, 8), (16, 15, 12)],
)
def test_the_first_token_that_differs_needs_what_is_computed_for_the_one_before(
    common: int, partial: int, whole: int
) -> None:
    for bench, cached in ((bench_of(), partial), (bench_of(whole=True), whole)):
        bench.scored(ids(16))
        other = bench.scored([*ids(common), *ids(7, 26)])
        assert other.cached_tokens == cached
        bench.assert_stored_values_are_right()


def test_a_match_that_is_cut_says_where_and_that_the_rest_was_not_asked_for() -> None:
    bench = bench_of()
    bench.scored(ids(16))
    assert reason(bench.scored([*ids(12), 49, 49])) == (Reason.BYPASSED, 11)
    assert reason(bench.scored(ids(16))) == (Reason.FULL, 15)
    assert bench.cache.ends[Reason.BYPASSED] == 1


def test_what_was_stored_without_values_is_computed_again_and_has_them_from_then_on() -> None:
    bench = bench_of()
    bench.answer(ids(20))
    second = bench.scored(ids(20))
    assert (second.cached_tokens, reason(second)) == (0, (Reason.BYPASSED, 0))
    assert bench.cache.counters.duplicate_blocks == 5
    assert bench.scored(ids(20)).cached_tokens == 19


def test_only_the_part_with_values_is_served() -> None:
    bench = bench_of()
    bench.scored(ids(8))
    bench.answer(ids(20))
    assert bench.scored(ids(20)).cached_tokens == 7
    assert bench.scored(ids(20)).cached_tokens == 19


def test_others_are_served_whatever_values_are_known() -> None:
    bench = bench_of()
    bench.answer(ids(20))
    assert bench.answer(ids(20)).cached_tokens == 19
    bench.scored(ids(20))
    assert bench.answer(ids(20)).cached_tokens == 19


def test_a_read_only_request_is_served_and_leaves_no_values_behind() -> None:
    bench = bench_of()
    bench.answer(ids(16))
    for _ in range(2):
        request = bench.scored(ids(16), mode=CacheMode.READ_ONLY)
        assert request.cached_tokens == 0
    bench.scored(ids(16))
    assert bench.scored(ids(16), mode=CacheMode.READ_ONLY).cached_tokens == 15


def test_a_request_that_reads_nothing_stores_the_values_that_it_finds() -> None:
    bench = bench_of()
    bench.answer(ids(16))
    assert bench.scored(ids(16), mode=CacheMode.WRITE_ONLY).cached_tokens == 0
    assert bench.scored(ids(16)).cached_tokens == 15


@pytest.mark.parametrize("step_tokens", [1, 3, 4, 5, 17])
def test_a_prompt_in_chunks_of_any_size_stores_the_same_values(step_tokens: int) -> None:
    bench = bench_of(max_step_tokens=step_tokens, max_running=1)
    bench.scored(ids(19))
    assert bench.model.valued == 18
    bench.assert_stored_values_are_right()
    again = bench.scored(ids(19))
    assert again.cached_tokens == 15
    assert bench.model.valued == 18 + 3


def test_siblings_of_one_step_each_find_their_values() -> None:
    """What one announces has no values before the step is over."""
    bench = bench_of(max_step_tokens=64, max_running=4)
    siblings = [bench.ask(ids(16)) for _ in range(3)]
    other = bench.submit(ids(16))
    bench.run()
    for sibling in siblings:
        assert sibling.cached_tokens == 0
        assert_has_its_values(sibling)
    assert other.cached_tokens == 12, "who wants none attaches to what is in flight"
    bench.assert_stored_values_are_right()
    assert bench.scored(ids(16)).cached_tokens == 15


def test_a_preempted_request_goes_on_from_the_values_that_it_had() -> None:
    bench = bench_of(blocks=8, max_step_tokens=8, max_running=4)
    prompts = [ids(11, seed) for seed in range(4)]
    requests = [bench.ask(prompt, 12) for prompt in prompts]
    bench.run()
    assert sum(request.preemptions for request in requests) > 0
    for request in requests:
        assert_has_its_values(request)
    assert bench.model.valued == 4 * 10, "none was found out twice"
    bench.assert_stored_values_are_right()


def test_answers_to_one_prompt_share_its_values_and_store_them_once_each() -> None:
    bench = bench_of()
    parent = bench.ask(ids(14), 9, branches=2)
    family = [parent, *parent.branches]
    bench.run()
    for request in family:
        assert_has_its_values(request)
    assert bench.model.valued == 13
    bench.assert_stored_values_are_right()
    assert bench.scored(ids(14)).cached_tokens == 13, "the last block was completed by the answers"


def test_an_heir_goes_on_with_the_values_of_the_answer_that_was_aborted() -> None:
    bench = bench_of(max_step_tokens=6, max_running=3)
    parent = bench.ask(ids(14), 2, branches=1)
    (heir,) = parent.branches
    bench.step()
    bench.scheduler.abort(parent)
    bench.run()
    assert_has_its_values(heir)
    assert bench.model.valued == 13
    bench.assert_stored_values_are_right()


def test_an_answers_values_are_stored_where_they_are_known() -> None:
    bench = bench_of()
    request = bench.ask(ids(6), 8)
    bench.run()
    bench.assert_stored_values_are_right()
    whole = request.tokens.tolist()
    assert bench.scored(whole).cached_tokens == 11, "12 of the 13 computed tokens fill blocks"


def test_answers_that_fork_off_have_values_of_their_own() -> None:
    bench = bench_of(max_running=4)
    parent = bench.ask(ids(6), 8, branches=2)
    family = [parent, *parent.branches]
    fork_with(bench, parent, 1, 2, 3)
    bench.value_answers()
    bench.run()
    bench.assert_stored_values_are_right()
    for request in family:
        assert bench.scored(request.tokens.tolist()).cached_tokens == 11


def test_what_others_wait_for_is_stored_with_its_values() -> None:
    """It is in the tree from the start, and its values come when it is computed."""
    bench = bench_of(max_step_tokens=8, max_running=1)
    bench.ask(ids(16))
    bench.submit(ids(5, 9))
    bench.run()
    bench.assert_stored_values_are_right()
    assert bench.scored(ids(16)).cached_tokens == 15


def test_values_that_a_ghost_had_are_still_its_own_when_it_is_stored_again() -> None:
    bench = bench_of(blocks=8)
    bench.scored(ids(16))
    assert bench.cache.evict(4) == 4
    assert bench.answer(ids(16)).cached_tokens == 0
    assert bench.scored(ids(16)).cached_tokens == 15
    bench.assert_stored_values_are_right()


def test_an_index_that_keeps_no_values_serves_nobody_who_wants_them() -> None:
    bench = ValuingBench(64, SIZE, make_cache=FlatCache)
    for _ in range(2):
        assert bench.scored(ids(16)).cached_tokens == 0
    assert bench.answer(ids(16)).cached_tokens == 12
