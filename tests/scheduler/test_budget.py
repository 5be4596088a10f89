from __future__ import annotations

import pytest

from scheduler import Limits, Request
from scheduler.budget import admission_cost, blocks_for, blocks_missing, prefill_share


@pytest.mark.parametrize(
    ("tokens", "size", "blocks"),
    [(0, 16, 0), (1, 16, 1), (16, 16, 1), (17, 16, 2), (32, 16, 2), (5, 1, 5)],
)
def test_blocks_hold_whole_block_sizes(tokens: int, size: int, blocks: int) -> None:
    assert blocks_for(tokens, size) == blocks


def test_only_the_blocks_that_are_not_held_yet_are_missing() -> None:
    assert blocks_missing(33, 0, 16) == 3
    assert blocks_missing(33, 2, 16) == 1
    assert blocks_missing(32, 2, 16) == 0
    assert blocks_missing(1, 2, 16) == 0


def test_a_hit_on_pinned_blocks_costs_only_what_is_not_matched() -> None:
    assert admission_cost(needed=10, matched=8, newly_pinned=0) == 2


def test_a_hit_on_unpinned_blocks_takes_them_from_those_that_can_be_evicted() -> None:
    assert admission_cost(needed=10, matched=8, newly_pinned=8) == 10
    assert admission_cost(needed=10, matched=8, newly_pinned=3) == 5


def test_a_hit_beyond_what_is_needed_gives_nothing_back() -> None:
    assert admission_cost(needed=3, matched=4, newly_pinned=0) == 0
    assert admission_cost(needed=3, matched=4, newly_pinned=2) == 2


@pytest.mark.parametrize("budget", range(1, 40))
def test_a_prefill_share_is_never_empty_and_leaves_a_quarter_to_those_who_wait(budget: int) -> None:
    share = prefill_share(budget, others_wait=True)
    assert 1 <= share <= budget
    assert budget - share == budget // 4
    assert prefill_share(budget, others_wait=False) == budget


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_step_tokens": 0}, "max_step_tokens must be at least 1, not 0"),
        ({"max_running": 0}, "max_running must be at least 1, not 0"),
        ({"max_passed_by": -1}, "max_passed_by must be at least 0, not -1"),
        ({"max_step_tokens": 8, "max_running": 9}, r"max_running \(9\) must not exceed"),
    ],
)
def test_limits_that_cannot_work_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Limits(**fields)


def test_a_request_without_a_prompt_or_without_an_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 token"):
        Request(1, [], 1)
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1, not 0"):
        Request(1, [1], 0)
