"""An abort between two steps, or between a step's plan and its end, whatever the request is at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler import Limits, Request, State
from scheduler.order import ORDERS
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of
from tests.scheduler.steps import step_leaving

LIMITS = Limits(max_step_tokens=8, max_running=4)


def queued(bench: Bench) -> Request:
    bench.submit(ids(30, 2), 8)
    return bench.submit(ids(20, 1), 4)


def looked_past(bench: Bench) -> Request:
    bench.answer(ids(16, 1))
    bench.submit(ids(24, 2), 8)
    bench.step()
    request = bench.submit([*ids(16, 1), *ids(14, 3)], 4)  # too long to run next to the other
    small = bench.submit(ids(3, 4), 9)
    bench.step()
    bench.step()
    assert (request.state, small.state) == (State.WAITING, State.RUNNING)
    assert request.match is not None, "the order gave it out, and took it back"
    return request


def mid_chunk(bench: Bench) -> Request:
    request = bench.submit(ids(30, 1), 4)
    bench.step()
    assert 0 < request.num_computed_tokens < 30
    return request


def decoding(bench: Bench) -> Request:
    bench.submit(ids(5, 2), 20)
    request = bench.submit(ids(10, 1), 10)
    while request.num_new_tokens < 3:
        bench.step()
    return request


def before_its_last_token(bench: Bench) -> Request:
    bench.submit(ids(5, 2), 20)
    request = bench.submit(ids(10, 1), 4)
    while request.num_new_tokens < 3:
        bench.step()
    return request


def preempted(bench: Bench) -> Request:
    bench.submit(ids(6, 1), 40)
    request = bench.submit(ids(6, 2), 40)
    while not request.preemptions:
        bench.step()
    assert request.state is State.WAITING
    return request


def with_branches_that_wait(bench: Bench) -> Request:
    request = bench.submit(ids(20, 1), 4, branches=2)
    bench.step()
    assert request.state is State.RUNNING
    return request


def branch_that_has_not_forked(bench: Bench) -> Request:
    return with_branches_that_wait(bench).branches[1]


def branch_that_has_forked(bench: Bench) -> Request:
    parent = bench.submit(ids(10, 1), 9, branches=2)
    branch = parent.branches[0]
    while branch.state is not State.RUNNING:
        bench.step()
    return branch


def undecided(bench: Bench) -> Request:
    bench.submit(ids(5, 2), 20)
    request = bench.submit(ids(10, 1), 10)
    while not request.num_computed_tokens or request.remaining_tokens:
        step_leaving(bench, request)
    return request


def parked(bench: Bench) -> Request:
    request = undecided(bench)
    bench.scheduler._requests.preempt(request)
    assert request.state is State.PARKED
    return request


STATES: list[Callable[[Bench], Request]] = [
    queued,
    looked_past,
    mid_chunk,
    decoding,
    before_its_last_token,
    preempted,
    with_branches_that_wait,
    branch_that_has_not_forked,
    branch_that_has_forked,
    undecided,
    parked,
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("reach", STATES)
def test_whatever_it_is_at_nothing_stays_pinned_and_the_others_go_on(
    reach: Callable[[Bench], Request], within: bool, order: str
) -> None:
    bench = Bench(14, 4, LIMITS, order=order, fair=True)
    request = reach(bench)
    tokens = list(request.tokens)
    if within:
        bench.step(abort=[request])
        assert all(result.request is not request for result in bench.results)
    else:
        bench.scheduler.abort(request)
        assert bench.scheduler.audit() == []
    assert request.state is State.FINISHED
    assert request.lease is None
    assert len(request.block_table) == 0
    bench.run()
    assert list(request.tokens) == tokens
    others = [other for other in bench.requests if other is not request]
    assert all(answer_of(other) == answer_alone_of(other) for other in others)
    counters = bench.scheduler.counters
    assert counters.requests_aborted == 1
    assert counters.requests_finished == len(others)
    assert bench.cache.counters.repeated_releases == 0
    bench.assert_idle()


@pytest.mark.parametrize("order", ORDERS)
def test_what_was_announced_and_not_committed_is_computed_by_those_who_attached(order: str) -> None:
    bench = Bench(60, 4, Limits(max_step_tokens=64, max_running=8), order=order)
    owner = bench.submit(ids(17, 1), 4)
    attached = [bench.submit([*ids(16, 1), *ids(3, seed)], 4) for seed in range(2, 5)]
    plan = bench.step(abort=[owner])
    assert plan.spans == ()
    assert all(request.state is State.WAITING for request in attached)
    assert bench.cache.counters.withdrawn_blocks == 4
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in attached)
    assert bench.computed == 16 + 3 * 3 + 3 * 3, "the head once, each one's own, its answer"
    bench.assert_idle()


def test_all_of_a_step_may_be_aborted_within_it() -> None:
    bench = Bench(60, 4, Limits(max_step_tokens=64, max_running=8))
    bench.submit(ids(17, 1), 4, branches=2)
    for seed in range(3):
        bench.submit([*ids(16, 1), *ids(3, seed)], 4)
    bench.step(abort=bench.requests[::-1])
    assert bench.scheduler.counters.requests_aborted == 6
    bench.assert_idle()
    assert bench.cache.pool.tree_blocks == 0


def test_equal_requests_of_different_ids_in_flight_get_an_answer_each() -> None:
    bench = Bench(30, 4)
    twins = [bench.submit(ids(11, 1), 5) for _ in range(2)]
    told: dict[Request, list[int]] = {twin: [] for twin in twins}
    while bench.scheduler.has_work:
        bench.step()
        for request, token, _ in bench.results:
            told[request].append(token)
    assert told[twins[0]] == told[twins[1]] == answer_alone_of(twins[0])
    bench.assert_idle()


def test_an_id_can_be_used_again_right_after_its_end_however_it_ended() -> None:
    bench = Bench(30, 4)
    scheduler = bench.scheduler
    for seed, end in enumerate([scheduler.abort, scheduler.finish, None]):
        pair = [Request(number, ids(9, seed), 3, deadline=50.0) for number in (7, 8)]
        pair[0].branches = pair[1:]
        scheduler.submit(pair[0])
        bench.requests += pair
        bench.step()
        for request in pair:
            if end is not None:
                end(request)
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in pair)
    assert scheduler.plan(50.0).ended == ()
    bench.assert_idle()


def test_an_id_in_use_is_refused_also_where_a_branch_has_it_and_nothing_is_queued() -> None:
    bench = Bench(30, 4)
    parent = bench.submit(ids(9, 1), 6, branches=1)  # ids 1 and 2
    taken = Request(3, ids(9, 2), 6)
    taken.branches = [Request(2, ids(9, 2), 6)]
    twice = Request(4, ids(9, 2), 6)
    twice.branches = [Request(5, ids(9, 2), 6), Request(4, ids(9, 2), 6)]
    alike = Request(6, ids(9, 2), 6)
    alike.branches = [Request(7, ids(9, 2), 6), Request(7, ids(9, 2), 6)]
    refused = [(Request(2, ids(9, 2), 6), 2), (taken, 2), (twice, 4), (alike, 7)]
    for _ in ("before the branch has forked off", "afterwards"):
        for request, used in refused:
            with pytest.raises(ValueError, match=f"request_id {used} is in use"):
                bench.scheduler.submit(request)
        assert bench.scheduler.num_waiting + bench.scheduler.num_running <= 2
        bench.step()
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    assert parent.state is State.FINISHED
    bench.assert_idle()
