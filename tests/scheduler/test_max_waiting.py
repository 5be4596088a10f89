"""The queue is bounded: who comes to a full one is refused at once, and nothing has changed."""

from __future__ import annotations

import pytest

from scheduler import Limits, QueueFull, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of


def test_as_many_wait_as_may_and_the_next_is_refused_until_one_has_started() -> None:
    bench = Bench(30, 4, Limits(max_step_tokens=16, max_running=1, max_waiting=8))
    accepted = 0
    for seed in range(50):
        if accepted < 8:
            bench.submit(ids(5, seed), 2)
            accepted += 1
        else:
            with pytest.raises(QueueFull, match="8 requests wait, the limit is 8"):
                bench.submit(ids(5, seed), 2)
    bench.step()
    bench.submit(ids(5, 50), 2)  # its id is one that was refused before
    with pytest.raises(QueueFull):
        bench.submit(ids(5, 51), 2)
    bench.run()
    assert len(bench.requests) == bench.scheduler.counters.requests_finished == 9
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    bench.assert_idle()


def test_a_prompt_with_branches_is_one_request_in_the_queue() -> None:
    bench = Bench(30, 4, Limits(max_step_tokens=16, max_running=4, max_waiting=2))
    bench.submit(ids(5, 1), 2, branches=3)
    bench.submit(ids(5, 2), 2, branches=3)
    with pytest.raises(QueueFull):
        bench.submit(ids(5, 3), 2, branches=3)
    assert bench.scheduler.num_waiting == 2
    bench.run()
    assert bench.scheduler.counters.requests_finished == 8


def test_preempted_requests_take_no_place_in_the_queue_from_new_ones() -> None:
    bench = Bench(20, 4, Limits(max_step_tokens=16, max_running=4, max_waiting=2))
    running = []
    for seed in range(3):
        running.append(bench.submit(ids(4, seed), 9))
        bench.step()
    for request in running[1:]:
        bench.scheduler._requests.preempt(request)  # as if blocks had run out
        assert request.state is State.WAITING
    new = [bench.submit(ids(4, seed), 2) for seed in (3, 4)]
    with pytest.raises(QueueFull, match="2 requests wait, the limit is 2"):
        bench.submit(ids(4, 5), 2)
    bench.scheduler.abort(running[1])  # its end makes no room for a new one either
    with pytest.raises(QueueFull):
        bench.submit(ids(4, 5), 2)
    bench.scheduler.abort(new[0])
    bench.submit(ids(4, 5), 2)
    bench.run()
    assert bench.scheduler.counters.requests_finished == 4
    bench.assert_idle()


def test_a_branch_that_goes_on_for_an_aborted_one_is_not_refused() -> None:
    bench = Bench(20, 4, Limits(max_step_tokens=16, max_running=4, max_waiting=1))
    parent = bench.submit(ids(40, 1), 2, branches=1)
    (branch,) = parent.branches
    bench.step()
    bench.submit(ids(4, 2), 2)
    bench.scheduler.abort(parent)
    assert bench.scheduler.num_waiting == 2
    bench.run()
    assert answer_of(branch) == answer_alone_of(branch)


def test_without_a_bound_any_number_waits() -> None:
    bench = Bench(20, 4, Limits(max_step_tokens=16, max_running=1))
    for seed in range(300):
        bench.submit(ids(4, seed))
    assert bench.scheduler.num_waiting == 300


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_waiting must be at least 1, not 0"):
        Limits(max_waiting=0)
