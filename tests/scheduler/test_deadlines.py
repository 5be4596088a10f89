"""A request ends at the first step that begins at its deadline or later; nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler import Ended, Limits, Request, State
from scheduler.deadlines import Deadlines
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of
from tests.scheduler.steps import fork_with, step_leaving

LIMITS = Limits(max_step_tokens=8, max_running=3)
DEADLINE = 5.0


def waiting(bench: Bench) -> Request:
    for seed in range(2, 5):
        bench.submit(ids(3, seed), 30)
    bench.step()
    return bench.submit(ids(3, 1), 4, deadline=DEADLINE)


def waiting_again(bench: Bench) -> Request:
    bench.submit(ids(6, 2), 20)
    request = bench.submit(ids(6, 1), 30, deadline=DEADLINE)
    bench.step()
    bench.scheduler._requests.preempt(request)  # as if blocks had run out
    return request


def mid_chunk(bench: Bench) -> Request:
    request = bench.submit(ids(40, 1), 4, deadline=DEADLINE)
    bench.step()
    assert request.num_computed_tokens == 8
    return request


def decoding(bench: Bench) -> Request:
    bench.submit(ids(3, 2), 30)
    request = bench.submit(ids(3, 1), 30, deadline=DEADLINE)
    bench.step()
    bench.step()
    assert request.num_new_tokens == 2
    return request


def undecided(bench: Bench) -> Request:
    request = bench.submit(ids(3, 1), 30, deadline=DEADLINE)
    step_leaving(bench, request)
    return request


@pytest.mark.parametrize("reach", [waiting, waiting_again, mid_chunk, decoding, undecided])
def test_it_ends_at_its_deadline_and_not_before_and_the_others_go_on(
    reach: Callable[[Bench], Request],
) -> None:
    bench = Bench(24, 4, LIMITS)
    request = reach(bench)
    before = request.state
    bench.now = 4.999
    plan = bench.scheduler.plan(bench.now)
    assert plan.ended == ()
    assert request in list(bench.scheduler.requests())
    bench.scheduler.commit(plan, bench.model.step(plan))
    bench.now = DEADLINE
    told = answer_of(request)
    plan = bench.step()
    assert plan.ended == (Ended(request, "deadline"),), before
    assert request.state is State.FINISHED
    assert all(span.request is not request for span in plan.spans)
    assert (request.lease, list(request.block_table)) == (None, [])
    assert all(not plan.ended for plan in bench.run())
    assert answer_of(request) == told == answer_alone_of(request)[: len(told)]
    others = [other for other in bench.requests if other is not request]
    assert all(answer_of(other) == answer_alone_of(other) for other in others)
    counters = bench.scheduler.counters
    assert (counters.requests_aborted, counters.requests_finished) == (1, len(others))
    bench.assert_idle()


def test_an_answer_that_is_complete_before_its_deadline_is_not_ended_again() -> None:
    bench = Bench(24, 4, LIMITS)
    request = bench.submit(ids(3, 1), 2, deadline=DEADLINE)
    bench.run()
    assert bench.scheduler._requests._deadlines._requests == {}, "nor is it kept until then"
    bench.now = 9.0
    other = bench.submit(ids(3, 2), 2, deadline=10.0)
    assert all(not plan.ended for plan in bench.run())
    assert answer_of(request) == answer_alone_of(request)
    assert answer_of(other) == answer_alone_of(other)


def test_a_request_that_comes_too_late_is_never_computed() -> None:
    bench = Bench(24, 4, LIMITS)
    bench.now = 6.0
    late = bench.submit(ids(3, 1), 2, deadline=DEADLINE)
    assert bench.step().ended == (Ended(late, "deadline"),)
    assert bench.computed == 0
    assert late.cached_tokens is None
    bench.assert_idle()


def test_all_answers_to_a_prompt_end_at_their_deadline_whether_they_have_forked_off() -> None:
    for forked in (False, True):
        bench = Bench(40, 4, LIMITS)
        parent = bench.submit(ids(10, 1), 9, branches=2, deadline=DEADLINE)
        family = [parent, *parent.branches]
        if forked:
            fork_with(bench, parent, 1, 2, 3)
        bench.now = DEADLINE
        plan = bench.step()
        assert plan.spans == ()
        assert plan.ended == tuple(Ended(request, "deadline") for request in family)
        assert bench.scheduler.counters.requests_aborted == 3
        bench.assert_idle()


@pytest.mark.parametrize("forked", [False, True])
def test_a_branch_with_a_deadline_of_its_own_ends_and_the_others_go_on(forked: bool) -> None:
    bench = Bench(40, 4, LIMITS)
    family = [Request(1 + n, ids(10, 1), 9, deadline=[None, DEADLINE, 9.0][n]) for n in range(3)]
    family[0].branches = family[1:]
    bench.scheduler.submit(family[0])
    bench.requests += family
    while forked and family[0].branches:
        bench.step()
    bench.now = DEADLINE
    assert bench.step().ended == (Ended(family[1], "deadline"),)
    bench.run()
    for request in (family[0], family[2]):
        assert answer_of(request) == answer_alone_of(request)
    bench.assert_idle()


def test_when_the_one_that_computes_for_a_sibling_runs_out_of_time_the_sibling_takes_over() -> None:
    bench = Bench(40, 4, LIMITS)
    first = bench.submit(ids(41, 1), 3, deadline=DEADLINE)
    sibling = bench.submit([*ids(40, 1), *ids(3, 2)], 3)
    bench.step()
    bench.step()
    assert sibling.state is State.WAITING
    bench.now = DEADLINE
    plan = bench.step()
    assert plan.ended == (Ended(first, "deadline"),)
    assert [span.request for span in plan.spans] == [sibling]
    assert sibling.cached_tokens == first.num_computed_tokens == 16
    bench.run()
    assert answer_of(sibling) == answer_alone_of(sibling)


def test_deadlines_come_in_their_order_and_know_nothing_of_those_who_have_ended() -> None:
    deadlines = Deadlines()
    requests = [Request(number, [1], 1, deadline=at) for number, at in enumerate([3.0, 1.0, 2.0])]
    for request in (*requests, Request(9, [1], 1)):
        deadlines.add(request)
    deadlines.ended(requests[2])
    again = Request(2, [1], 1, deadline=4.0)  # another one with the id of who has ended
    deadlines.add(again)
    assert list(deadlines.passed(0.5)) == []
    assert list(deadlines.passed(3.0)) == [requests[1], requests[0]]
    assert list(deadlines.passed(3.0)) == []
    assert list(deadlines.passed(4.0)) == [again]
    assert deadlines._requests == {}
