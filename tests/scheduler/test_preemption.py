from __future__ import annotations

import pytest

from scheduler import Limits, Request, State, StepPlan
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of, hold_back


def answers_are_those_alone(bench: Bench) -> bool:
    return all(answer_of(request) == answer_alone_of(request) for request in bench.requests)


def first_preemption(bench: Bench) -> StepPlan:
    while True:
        plan = bench.step()
        if plan.preempted:
            return plan


def test_when_blocks_run_out_the_last_admitted_one_waits_again_and_loses_no_token() -> None:
    bench = Bench(10, 4)
    first, last = bench.submit(ids(8, 1), 24), bench.submit(ids(8, 2), 24)
    plan = first_preemption(bench)
    assert plan.preempted == (last,)
    assert (last.state, last.preemptions, first.preemptions) == (State.WAITING, 1, 0)
    assert last.num_computed_tokens == 0
    assert len(last.block_table) == 0
    assert last.lease is None
    generated = answer_of(last)
    assert generated == answer_alone_of(last)[: len(generated)]
    assert generated
    bench.run()
    assert answers_are_those_alone(bench)
    bench.assert_idle()


def test_a_preempted_request_is_in_no_span_of_the_step() -> None:
    bench = Bench(10, 4)
    for seed in range(3):
        bench.submit(ids(5, seed), 24)
    while bench.scheduler.has_work:
        plan = bench.step()
        scheduled = [span.request for span in plan.spans]
        assert not any(request in scheduled for request in plan.preempted)


def test_evictable_blocks_are_taken_before_anyone_is_preempted() -> None:
    bench = Bench(16, 4)
    bench.answer(ids(40, 9))
    assert bench.cache.pool.tree_blocks == 10
    bench.submit(ids(8, 1), 24)
    bench.submit(ids(8, 2), 24)
    bench.run()
    assert bench.scheduler.counters.preemptions == 0
    assert bench.cache.counters.evicted_blocks > 0
    assert answers_are_those_alone(bench)


def test_a_preempted_request_resumes_before_later_arrivals() -> None:
    bench = Bench(10, 4)
    bench.submit(ids(8, 1), 24)
    last = bench.submit(ids(8, 2), 24)
    first_preemption(bench)
    bench.cache.flush()
    later = [bench.submit(ids(8, 1), 2) for _ in range(4)]  # hot, and would fit
    while last.state is State.WAITING:
        bench.step()
        if last.state is State.WAITING:
            assert all(request.state is State.WAITING for request in later)
    bench.run()
    assert answers_are_those_alone(bench)
    bench.assert_idle()


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    bench = Bench(10, 4)
    bench.submit(ids(8, 1), 24)
    bench.submit(ids(8, 2), 24)
    while not bench.scheduler.counters.preemptions:
        newcomer = bench.submit([3], 1)
        plan = bench.step()
    assert newcomer.state is State.WAITING
    assert all(span.request is not newcomer for span in plan.spans)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_two_that_each_need_the_whole_memory_are_served_one_after_the_other(size: int) -> None:
    bench = Bench(8, size)
    for seed in (1, 2):
        bench.submit(ids(4 * size, seed), 4 * size + 1)
    bench.run()
    assert answers_are_those_alone(bench)
    bench.assert_idle()


@pytest.mark.parametrize("blocks", [17, 20, 24])
def test_all_running_ones_may_need_a_block_in_the_same_step(blocks: int) -> None:
    bench = Bench(blocks, 16)
    for seed in range(8):
        bench.submit(ids(16, seed), 34)
    bench.run()
    assert bench.scheduler.counters.preemptions > 0
    assert answers_are_those_alone(bench)
    bench.assert_idle()


@pytest.mark.parametrize(("prompt", "new", "overcommit"), [(64, 64, 2), (200, 32, 2), (32, 100, 4)])
def test_overcommitted_memory_costs_few_preemptions_and_little_recomputing(
    prompt: int, new: int, overcommit: int
) -> None:
    total = 50 * -(-(prompt + new) // 16)
    bench = Bench(total // overcommit, 16, Limits(max_step_tokens=512, max_running=64))
    requests = [bench.submit(ids(prompt, seed), new) for seed in range(50)]
    computed = sum(plan.num_tokens for plan in bench.run())
    assert bench.scheduler.counters.preemptions > 0
    assert max(request.preemptions for request in requests) <= 4
    assert computed <= 2 * 50 * (prompt + new - 1)
    assert answers_are_those_alone(bench)
    bench.assert_idle()


def preempt(bench: Bench, request: Request) -> None:
    """As if blocks had run out just now."""
    bench.scheduler._requests.preempt(request)
    assert bench.scheduler.audit() == []


def test_what_a_sibling_stored_meanwhile_is_found_when_a_request_resumes() -> None:
    bench = Bench(64, 4, Limits(max_step_tokens=6, max_running=2, max_passed_by=0))
    sibling, request = bench.submit(ids(40, 1), 2), bench.submit(ids(38, 1), 2)
    while sibling.num_computed_tokens < 12:
        bench.step()
    while not request.num_computed_tokens:
        bench.step()
    computed = request.num_computed_tokens
    assert request.cached_tokens is not None
    first_cached = request.cached_tokens
    preempt(bench, request)
    hold_back(bench, request)  # until the sibling is done
    while sibling.state is not State.FINISHED:
        bench.step()
    bench.scheduler._waiting.put_back(request)
    plan = bench.step()
    (span,) = plan.spans
    assert (span.start, span.count) == (36, 2)
    assert request.cached_tokens == first_cached, "it is fixed at first admission"
    assert bench.scheduler.counters.cached_late_tokens == 36 - computed
    bench.run()
    assert answers_are_those_alone(bench)
    bench.assert_idle()


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("ending", ["abort", "preempt"])
def test_blocks_of_a_prompt_that_was_cut_off_half_way_serve_the_next_one_rightly(
    chunks: int, ending: str
) -> None:
    bench = Bench(16, 4, Limits(max_step_tokens=9, max_running=4))
    request = bench.submit(ids(36, 1), 3)
    for _ in range(chunks):
        bench.step()
    if ending == "abort":
        bench.scheduler.abort(request)
    else:
        preempt(bench, request)
        bench.run()
        assert answer_of(request) == answer_alone_of(request)
    for seed in range(2, 12):  # others take the blocks that came back
        bench.answer(ids(30 + seed, seed), 5)
    for _ in range(2):
        again = bench.answer(ids(36, 1), 3)
        assert answer_of(again) == answer_alone_of(again)
    bench.assert_idle()


def test_preempted_requests_resume_in_the_order_in_which_they_first_came() -> None:
    bench = Bench(64, 4)
    first, second, third = (bench.submit(ids(9, seed), 9) for seed in (1, 2, 3))
    bench.step()
    preempt(bench, third)
    preempt(bench, second)
    plan = bench.step()
    assert [span.request for span in plan.spans] == [first, second, third]


def test_a_request_is_not_admitted_into_the_room_that_a_long_prompt_before_it_will_need() -> None:
    bench = Bench(10, 4, Limits(max_step_tokens=8, max_running=4))
    long, short = bench.submit(ids(32, 1)), bench.submit(ids(8, 2))
    bench.step()
    assert long.num_computed_tokens == 8, "what was kept for the short one, it could not take"
    assert short.state is State.WAITING
    bench.run()
    assert bench.scheduler.counters.preemptions == 0
    bench.assert_idle()
