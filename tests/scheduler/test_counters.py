from __future__ import annotations

from collections.abc import Sequence

from scheduler import Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, hold_back


def assert_the_sums_agree(bench: Bench, requests: Sequence[Request]) -> None:
    """Every counter, computed again from the (unaborted) requests and the steps."""
    counters = bench.scheduler.counters
    prompts = sum(request.num_prompt_tokens for request in requests)
    assert counters.prompt_tokens == prompts
    assert counters.cached_tokens == sum(request.cached_tokens or 0 for request in requests)
    counted = counters.cached_tokens + counters.computed_tokens + counters.cached_late_tokens
    assert counted == prompts
    assert counters.generated_tokens == sum(request.num_new_tokens for request in requests)
    assert counters.requests_finished == len(requests)
    assert counters.requests_aborted == 0
    assert counters.preemptions == sum(request.preemptions for request in requests)


def test_a_lone_request_computes_its_prompt_and_all_but_the_last_token_of_its_answer() -> None:
    bench = Bench(16, 16, Limits(max_step_tokens=32, max_running=4))
    bench.answer(ids(70, 1), 9)
    counters = bench.scheduler.counters
    assert (counters.prompt_tokens, counters.computed_tokens, counters.cached_tokens) == (70, 70, 0)
    assert counters.generated_tokens == 9
    assert counters.steps == 3 + 8
    assert bench.computed == 70 + 8
    assert_the_sums_agree(bench, bench.requests)


def test_a_hit_counts_as_cached_once() -> None:
    bench = Bench(16, 16)
    bench.answer(ids(70, 1))
    bench.answer(ids(70, 1))
    counters = bench.scheduler.counters
    assert (counters.prompt_tokens, counters.computed_tokens) == (140, 70 + 6)
    assert counters.cached_tokens == 64
    assert_the_sums_agree(bench, bench.requests)


def test_different_prompts_never_hit_whatever_is_preempted_or_does_not_fit() -> None:
    bench = Bench(12, 4, Limits(max_step_tokens=12, max_running=6))
    requests = [bench.submit(ids(5 + seed % 17, seed), 1 + seed % 20) for seed in range(60)]
    while bench.scheduler.has_work:
        bench.step()
    counters = bench.scheduler.counters
    assert counters.preemptions > 0
    assert counters.recomputed_tokens > 0
    assert counters.cached_tokens == 0
    assert_the_sums_agree(bench, requests)
    generated_and_computed = sum(request.num_new_tokens - 1 for request in requests)
    assert bench.computed == (
        counters.computed_tokens + counters.recomputed_tokens + generated_and_computed
    )


def test_what_is_computed_again_after_a_preemption_counts_as_recomputed() -> None:
    bench = Bench(10, 4)
    bench.submit(ids(8, 1), 24)
    last = bench.submit(ids(8, 2), 24)
    while not last.preemptions:
        bench.step()
    lost = last.most_computed_tokens
    found = None
    while last.state is not State.FINISHED:
        plan = bench.step()
        starts = [span.start for span in plan.spans if span.request is last]
        if starts and found is None:
            found = starts[0]
    assert found is not None
    assert bench.scheduler.counters.recomputed_tokens == lost - found
    assert_the_sums_agree(bench, bench.requests)


def test_a_prompt_that_is_found_only_after_a_preemption_counts_as_cached_late() -> None:
    bench = Bench(64, 4, Limits(max_step_tokens=6, max_running=2, max_passed_by=0))
    sibling, request = bench.submit(ids(40, 1)), bench.submit(ids(38, 1))
    while not request.num_computed_tokens:
        bench.step()
    bench.scheduler._requests.preempt(request)
    hold_back(bench, request)
    while sibling.state is not State.FINISHED:
        bench.step()
    bench.scheduler._waiting.put_back(request)
    bench.run()
    assert bench.scheduler.counters.cached_late_tokens > 0
    assert request.cached_tokens == 4  # the block that the sibling computed in the same step
    assert_the_sums_agree(bench, bench.requests)


def test_prompt_tokens_of_a_request_that_never_ran_are_not_counted() -> None:
    bench = Bench(16, 4, Limits(max_step_tokens=16, max_running=1))
    bench.submit(ids(9, 1), 5)
    waiting = bench.submit(ids(20, 2))
    bench.step()
    bench.scheduler.abort(waiting)
    bench.run()
    assert bench.scheduler.counters.prompt_tokens == 9
    assert waiting.cached_tokens is None


def test_tokens_computed_three_times_count_once_as_computed_and_twice_as_recomputed() -> None:
    bench = Bench(16, 4, Limits(max_step_tokens=8, max_running=2))
    request = bench.submit(ids(40, 1))
    for computed in (24, 8):
        while request.num_computed_tokens < computed:
            bench.step()
        bench.scheduler._requests.preempt(request)
        bench.cache.flush()  # so that nothing of it is found again
    bench.run()
    assert bench.scheduler.counters.computed_tokens == 40
    assert bench.scheduler.counters.recomputed_tokens == 8 + 24
    assert_the_sums_agree(bench, [request])
