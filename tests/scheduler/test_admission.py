from __future__ import annotations

import pytest

from radix_engine.cache import CacheMode
from scheduler import Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of


def one_at_a_time(bench: Bench) -> list[Request]:
    """Run to the end with ``max_running`` 1; the requests in the order in which they ran."""
    order = []
    for plan in bench.run():
        (span,) = plan.spans
        if span.request not in order:
            order.append(span.request)
    return order


def test_the_longest_cached_prefix_goes_first_and_the_earlier_arrival_where_equal() -> None:
    bench = Bench(64, 4, Limits(max_step_tokens=64, max_running=1))
    bench.answer(ids(16, 1))
    cold, cold_too = bench.submit(ids(9, 2)), bench.submit(ids(9, 3))
    short, long = bench.submit(ids(6, 1)), bench.submit(ids(13, 1))
    short_too = bench.submit([*ids(4, 1), 3])
    assert one_at_a_time(bench) == [long, short, short_too, cold, cold_too]


def test_a_request_that_does_not_use_the_cache_waits_with_those_that_match_nothing() -> None:
    bench = Bench(64, 4, Limits(max_step_tokens=64, max_running=1))
    bench.answer(ids(16, 1))
    blind = bench.submit(ids(16, 1), mode=CacheMode.BYPASS)
    hot, cold = bench.submit(ids(16, 1)), bench.submit(ids(9, 2))
    assert one_at_a_time(bench) == [hot, blind, cold]


def test_what_an_earlier_one_stores_while_others_wait_counts_for_their_order() -> None:
    bench = Bench(64, 4, Limits(max_step_tokens=64, max_running=1))
    first, cold = bench.submit(ids(13, 1)), bench.submit(ids(13, 2))
    related = bench.submit(ids(13, 1))
    assert one_at_a_time(bench) == [first, related, cold]
    assert related.cached_tokens == 12


def test_without_any_passing_the_order_is_that_of_arrival() -> None:
    bench = Bench(64, 4, Limits(max_step_tokens=64, max_running=1, max_passed_by=0))
    bench.answer(ids(16, 1))
    requests = [bench.submit(ids(9 + seed % 2, seed % 3)) for seed in range(9)]
    assert one_at_a_time(bench) == requests


@pytest.mark.parametrize("bound", [1, 8, 64])
def test_a_cold_request_starts_within_the_bound_under_an_endless_hot_stream(bound: int) -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=256, max_running=1, max_passed_by=bound))
    bench.answer(ids(64, 1))
    hit = bench.scheduler.counters.cached_tokens
    cold = bench.submit(ids(80, 2))
    started = None
    for step in range(300):
        bench.submit([*ids(64, 1), *ids(5, 100 + step)])
        bench.step()
        if started is None and cold.state is not State.WAITING:
            started = step
    assert started == bound, "exactly as many as may pass have passed"
    assert bench.scheduler.most_passed_by == bound
    assert bench.scheduler.counters.cached_tokens - hit == 299 * 64
    assert answer_of(cold) == answer_alone_of(cold)


def test_a_stream_of_cold_requests_after_it_never_passes_an_equal_one() -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=256, max_running=2))
    requests = [bench.submit(ids(30, seed), 3) for seed in range(20)]
    bench.run()
    assert bench.scheduler.most_passed_by == 0
    assert all(answer_of(request) == answer_alone_of(request) for request in requests)


def test_a_head_that_does_not_fit_is_looked_past_but_not_passed_more_often_than_the_bound() -> None:
    bench = Bench(20, 16, Limits(max_step_tokens=512, max_running=16, max_passed_by=3))
    running = bench.submit(ids(160, 1), 20)
    bench.step()
    head = bench.submit(ids(200, 2), 2)  # 13 blocks, of which about 9 are there
    small = [bench.submit(ids(20, seed), 2) for seed in range(3, 13)]
    bench.step()
    assert small[0].state is State.RUNNING, "it is admitted in the step that looked past the head"
    assert head.state is State.WAITING
    while head.state is State.WAITING:
        started = sum(request.state is not State.WAITING for request in small)
        assert bench.scheduler.passed_by(head) == started <= 3
        bench.step()
        small.append(bench.submit(ids(20, len(bench.requests)), 2))
    assert bench.scheduler.most_passed_by == 3
    assert running.state is State.FINISHED
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    bench.assert_idle()


def test_a_short_prompt_gets_its_token_next_to_a_huge_one_and_decoders_get_one_each_step() -> None:
    bench = Bench(800, 16, Limits(max_step_tokens=512, max_running=16))
    decoders = [bench.submit(ids(20, seed), 100) for seed in range(1, 5)]
    bench.step()
    huge = bench.submit([token for seed in range(16) for token in ids(512, 10 + seed)], 1)
    bench.step()
    short = bench.submit(ids(20, 99), 1)
    steps = 0
    while short.state is not State.FINISHED:
        before = [request.num_new_tokens for request in decoders]
        bench.step()
        steps += 1
        assert [request.num_new_tokens for request in decoders] == [n + 1 for n in before]
    assert steps <= 3
    assert 0 < huge.num_computed_tokens < 8192
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)


@pytest.mark.parametrize("length", [200, 400])
def test_a_prompt_that_needs_some_steps_gets_them_next_to_a_huge_one(length: int) -> None:
    bench = Bench(800, 16, Limits(max_step_tokens=512, max_running=16))
    huge = bench.submit([token for seed in range(16) for token in ids(512, 10 + seed)], 1)
    bench.step()
    middling = bench.submit(ids(length, 99), 1)
    steps = 0
    while middling.state is not State.FINISHED:
        bench.step()
        steps += 1
    assert steps <= -(-length // 128)
    assert huge.num_computed_tokens <= 512 * (steps + 1) - length


def test_siblings_that_arrive_together_compute_their_common_head_once() -> None:
    bench = Bench(200, 16, Limits(max_step_tokens=512, max_running=64))
    head = ids(1024, 1)
    siblings = [bench.submit(head + ids(16, 50 + seed), 4) for seed in range(8)]
    bench.run()
    counters = bench.scheduler.counters
    assert counters.computed_tokens == 1024 + 8 * 16
    assert counters.cached_tokens == 7 * 1024
    assert counters.recomputed_tokens == 0
    assert bench.cache.counters.duplicate_blocks == 0
    assert all(answer_of(request) == answer_alone_of(request) for request in siblings)


def test_equal_prompts_that_arrive_together_compute_only_their_last_block_each() -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=64, max_running=64))
    twins = [bench.submit(ids(100, 1), 20) for _ in range(5)]
    bench.run()
    assert bench.scheduler.counters.computed_tokens == 100 + 4 * 4
    assert len({tuple(answer_of(request)) for request in twins}) == 1
    assert answer_of(twins[0]) == answer_alone_of(twins[0])
    bench.assert_idle()


def test_others_are_admitted_past_one_that_waits_for_a_sibling() -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=64, max_running=64))
    bench.submit(ids(320, 1))
    sibling, stranger = bench.submit(ids(300, 1)), bench.submit(ids(20, 2))
    bench.step()
    bench.step()
    assert sibling.state is State.WAITING
    assert stranger.state is not State.WAITING


def test_one_that_waited_for_a_sibling_for_too_long_computes_for_itself() -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=64, max_running=8, max_passed_by=2))
    first = bench.submit(ids(320, 1))
    sibling = bench.submit(ids(300, 1))
    for seed in range(2, 6):
        bench.submit(ids(10, seed))
        bench.step()
    assert sibling.state is State.RUNNING
    assert first.state is State.RUNNING
    assert bench.scheduler.most_passed_by == 2
    bench.run()
    assert bench.scheduler.counters.computed_tokens > 320
    assert bench.cache.counters.duplicate_blocks > 0, "both computed some of the same blocks"
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    bench.assert_idle()


def test_no_one_waits_for_the_block_that_holds_its_last_token() -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=24, max_running=8))
    bench.submit(ids(200, 1))
    bench.step()
    shorter = bench.submit(ids(32, 1))  # of its two blocks it can find only the first
    bench.step()
    assert shorter.state is State.RUNNING
    assert shorter.cached_tokens == 16


def test_no_one_waits_for_a_sibling_that_does_not_store() -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=64, max_running=8))
    bench.submit(ids(320, 1), mode=CacheMode.BYPASS)
    sibling = bench.submit(ids(300, 1))
    bench.step()
    assert sibling.state is State.RUNNING


def test_no_one_waits_for_a_sibling_that_stores_into_a_flushed_tree() -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=64, max_running=8))
    bench.submit(ids(320, 1))
    sibling = bench.submit(ids(300, 1))
    bench.step()
    bench.step()
    assert bench.scheduler.num_waiting == 1
    bench.cache.flush()
    bench.step()
    assert sibling.state is State.RUNNING
    assert sibling.cached_tokens == 0
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    bench.assert_idle()


def test_a_hit_lets_a_request_in_that_would_not_fit_without() -> None:
    bench = Bench(14, 16, Limits(max_step_tokens=256, max_running=8))
    holder = bench.submit(ids(100, 1), 60)
    bench.step()
    while holder.num_computed_tokens < 110:
        bench.step()
    cold, hot = bench.submit(ids(120, 2)), bench.submit(ids(97, 1))
    bench.step()
    assert hot.state is not State.WAITING
    assert hot.cached_tokens == 96
    assert cold.state is State.WAITING
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
