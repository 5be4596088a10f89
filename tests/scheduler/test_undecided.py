"""Requests whose next token is undecided: they hold what they have, but never for good."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from radix_engine.cache import PrefixCache
from scheduler import Limits, NewToken, Request, Scheduler, State, StepPlan
from tests.checking_model import CheckingModel

SIZE = 4


class Table:
    """A scheduler over so many blocks of 4 tokens, and the checking model."""

    def __init__(self, num_blocks: int, max_running: int = 8) -> None:
        self.cache = PrefixCache(num_blocks, SIZE)
        self.model = CheckingModel(self.cache)
        self.scheduler = Scheduler(self.cache, Limits(64, max_running))

    def submit(self, request_id: int, first: int, count: int = 9) -> Request:
        request = Request(request_id, [first, *range(count - 1)], 3)
        self.scheduler.submit(request)
        return request

    def step(self, tokens: Sequence[int | None]) -> StepPlan:
        """Plan, compute and commit; every block is where it should be before and after."""
        plan = self.scheduler.plan()
        assert self.scheduler.audit() == []
        self.model.step(plan)
        self.scheduler.commit(plan, tokens)
        self.check()
        return plan

    def resume(self, request: Request, tokens: Sequence[int]) -> list[NewToken]:
        results = self.scheduler.resume(request, tokens)
        self.check()
        return results

    def check(self) -> None:
        assert self.scheduler.audit() == []
        assert self.scheduler.sum_problem() is None


def requests_of(plan: StepPlan) -> list[Request]:
    return [span.request for span in plan.spans]


def two_with_room_for_one() -> tuple[Table, Request, Request]:
    """One is undecided and, for want of room, parked; the other has been computed instead."""
    table = Table(num_blocks=4)
    one, other = table.submit(1, 40), table.submit(2, 41)
    assert requests_of(table.step([None])) == [one]
    plan = table.step([None])
    assert (requests_of(plan), plan.preempted) == ([other], (one,))
    return table, one, other


def test_an_undecided_request_takes_part_in_no_step_and_keeps_its_blocks() -> None:
    table = Table(num_blocks=8)
    one, other = table.submit(1, 40), table.submit(2, 41)
    table.step([None, 7])
    assert requests_of(table.step([7])) == [other]
    assert (one.state, len(one.block_table)) == (State.RUNNING, 3)
    table.resume(one, [5])
    assert requests_of(table.step([7, 7])) == [one, other]


def test_undecided_requests_give_their_room_to_those_that_wait() -> None:
    table, one, other = two_with_room_for_one()
    assert (one.state, len(one.block_table)) == (State.PARKED, 0)
    assert (other.state, len(other.block_table)) == (State.RUNNING, 3)
    assert (table.scheduler.num_running, table.scheduler.num_waiting) == (1, 1)
    assert set(table.scheduler.requests()) == {one, other}


def test_undecided_requests_give_their_places_to_those_that_wait() -> None:
    table = Table(num_blocks=16, max_running=1)
    one, other = table.submit(1, 40), table.submit(2, 41)
    assert requests_of(table.step([None])) == [one]
    plan = table.step([None])
    assert (requests_of(plan), plan.preempted) == ([other], (one,))


def test_a_parked_request_is_not_computed_again_before_it_is_decided() -> None:
    table, one, _ = two_with_room_for_one()
    plan = table.scheduler.plan()
    assert (plan.spans, plan.preempted, plan.ended) == ((), (), ())
    assert table.resume(one, [5]) == [NewToken(one, 5, None)]
    assert one.state is State.WAITING
    assert requests_of(table.step([6])) == [one]
    assert one.tokens[9:].tolist() == [5, 6]


def test_what_a_parked_request_computes_again_counts_as_computed_again() -> None:
    table, one, other = two_with_room_for_one()
    table.resume(one, [5])
    table.step([6])
    table.resume(other, [5])
    while table.scheduler.has_work:
        plan = table.scheduler.plan()
        table.model.step(plan)
        table.scheduler.commit(plan, [6] * len(plan.sampling))
    counters = table.scheduler.counters
    assert counters.prompt_tokens == 18
    assert counters.computed_tokens + counters.cached_late_tokens == 18
    assert counters.recomputed_tokens > 0
    assert counters.requests_finished == 2


def test_branches_fork_off_a_parked_request_and_wait_for_room_with_it() -> None:
    table, one, other = two_with_room_for_one()
    branch = Request(3, [0], 3)
    one.branches = [branch]
    table.resume(one, [5, 6])
    assert branch.tokens[:9] == one.tokens[:9]
    assert (one.tokens[9], branch.tokens[9]) == (5, 6)
    assert (one.state, branch.state) == (State.WAITING, State.WAITING)
    table.scheduler.abort(other)
    while table.scheduler.has_work:
        plan = table.scheduler.plan()
        table.model.step(plan)
        table.scheduler.commit(plan, [7] * len(plan.sampling))
        table.check()
    assert (one.tokens[9:].tolist(), branch.tokens[9:].tolist()) == ([5, 7, 7], [6, 7, 7])
    counters = table.scheduler.counters
    assert counters.prompt_tokens == 18, "the branch's prompt is its parent's"
    assert counters.computed_tokens + counters.cached_late_tokens == 18


@pytest.mark.parametrize("end", ["finish", "abort"])
def test_a_parked_request_can_be_ended(end: str) -> None:
    table, one, other = two_with_room_for_one()
    with pytest.raises(ValueError, match="in use"):
        table.submit(1, 42)
    getattr(table.scheduler, end)(one)
    table.check()
    assert one.state is State.FINISHED
    assert table.scheduler.num_waiting == 0
    table.submit(1, 40)
    table.resume(other, [5])
    assert requests_of(table.step([6])) == [other]
