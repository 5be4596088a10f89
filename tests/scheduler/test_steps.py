from __future__ import annotations

import math

import pytest

from radix_engine.cache import CacheMode
from scheduler import Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone, answer_of


def spans_of(bench: Bench, request: Request) -> list[tuple[int, int]]:
    """Where each step of a request starts and how many tokens it computes, until it ends."""
    spans = []
    while request.state is not State.FINISHED:
        plan = bench.step()
        spans += [(span.start, span.count) for span in plan.spans if span.request is request]
    return spans


@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
def test_a_fully_cached_prompt_computes_its_last_token(size: int, blocks: int) -> None:
    bench = Bench(40, size)
    prompt = ids(blocks * size, 1)
    cold = bench.answer(prompt, 3)
    assert cold.cached_tokens == 0
    for _ in range(3):
        warm = bench.submit(prompt, 3)
        (first, *_) = spans_of(bench, warm)
        cached = (blocks * size - 1) // size * size
        assert warm.cached_tokens == cached
        assert first == (cached, blocks * size - cached)
        assert answer_of(warm) == answer_of(cold) == answer_alone(prompt, 3)
    bench.assert_idle()


@pytest.mark.parametrize("size", [1, 4, 16])
def test_the_next_turn_finds_prompt_and_answer_but_not_the_last_sampled_token(size: int) -> None:
    bench = Bench(64, size)
    first = bench.answer(ids(10, 1), 5)
    turn = bench.submit([*first.tokens, *ids(3, 2)], 1)
    bench.run()
    assert turn.cached_tokens == (10 + 5 - 1) // size * size
    assert answer_of(turn) == answer_alone([*first.tokens, *ids(3, 2)], 1)


@pytest.mark.parametrize("cached", [0, 16, 160])
@pytest.mark.parametrize("remaining", [1, 2, 31, 32, 33, 64, 132])
def test_a_prompt_takes_as_many_steps_as_it_has_chunks(cached: int, remaining: int) -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=32, max_running=8))
    if cached:
        bench.answer(ids(cached, 1))
    request = bench.submit(ids(cached, 1) + ids(remaining, 2))
    spans = spans_of(bench, request)
    assert request.cached_tokens == cached
    assert len(spans) == math.ceil(remaining / 32)
    assert [start for start, _ in spans] == list(range(cached, cached + remaining, 32))
    assert sum(count for _, count in spans) == remaining
    assert answer_of(request) == answer_alone(ids(cached, 1) + ids(remaining, 2), 1)


@pytest.mark.parametrize("new", [1, 2, 15, 16, 17, 40])
def test_an_answer_has_exactly_as_many_tokens_as_asked_for(new: int) -> None:
    bench = Bench(16, 16)
    request = bench.submit(ids(9, 1), new)
    reasons = []
    while bench.scheduler.has_work:
        bench.step()
        reasons += [result.finish_reason for result in bench.results]
    assert reasons == [None] * (new - 1) + ["length"]
    assert request.num_new_tokens == new
    assert answer_of(request) == answer_alone(ids(9, 1), new)
    bench.assert_idle()


def test_an_answer_that_fills_the_memory_to_the_last_row_is_given() -> None:
    bench = Bench(4, 16)
    request = bench.submit(ids(60, 1), 5)  # the last token needs no room
    bench.run()
    assert answer_of(request) == answer_alone(ids(60, 1), 5)
    bench.assert_idle()


def test_an_answer_ends_at_a_stop_token_and_keeps_it() -> None:
    answer = answer_alone(ids(9, 1), 20)
    stop = next(at for at in range(5, 20) if answer[at] not in answer[:at])
    bench = Bench(16, 16)
    request = bench.submit(ids(9, 1), 20, frozenset({answer[stop], 77}))
    bench.run()
    assert answer_of(request) == answer[: stop + 1]
    assert bench.results[-1].finish_reason == "stop"
    bench.assert_idle()


def test_a_stop_token_that_is_also_the_last_allowed_one_ends_with_stop() -> None:
    answer = answer_alone(ids(9, 1), 1)
    bench = Bench(16, 16)
    bench.submit(ids(9, 1), 1, frozenset(answer))
    bench.run()
    assert [result.finish_reason for result in bench.results] == ["stop"]


def test_the_caller_may_end_a_request_early() -> None:
    bench = Bench(16, 4)
    request = bench.submit(ids(9, 1), 20)
    for _ in range(4):
        bench.step()
    bench.scheduler.finish(request)
    bench.assert_idle()
    assert bench.scheduler.counters.requests_finished == 1
    assert answer_of(request) == answer_alone(ids(9, 1), 4)


def test_hits_misses_and_one_token_prompts_share_a_step() -> None:
    bench = Bench(64, 4)
    bench.answer(ids(16, 1))
    prompts = [ids(17, 1), [*ids(8, 1), *ids(5, 2)], ids(11, 3), [7]]
    requests = [bench.submit(prompt, 6) for prompt in prompts]
    plan = bench.step()
    assert len(plan.spans) == 4
    assert [request.cached_tokens for request in requests] == [16, 8, 0, 0]
    bench.run()
    for prompt, request in zip(prompts, requests, strict=True):
        assert answer_of(request) == answer_alone(prompt, 6)
    bench.assert_idle()


def test_a_request_that_does_not_use_the_cache_stores_and_reads_nothing() -> None:
    bench = Bench(32, 4)
    bench.answer(ids(12, 1), 4)
    tree, version = bench.cache.pool.tree_blocks, bench.cache.version
    for _ in range(2):
        request = bench.submit(ids(12, 1), 9, mode=CacheMode.BYPASS)
        other = bench.submit(ids(20, 2), 9, mode=CacheMode.BYPASS)
        bench.run()
        assert request.cached_tokens == other.cached_tokens == 0
        assert answer_of(request) == answer_alone(ids(12, 1), 9)
        assert (bench.cache.pool.tree_blocks, bench.cache.version) == (tree, version)
    bench.assert_idle()


def test_requests_run_on_through_a_flush_and_later_ones_start_cold() -> None:
    bench = Bench(32, 4, Limits(max_step_tokens=8, max_running=4))
    bench.answer(ids(12, 1))
    running = bench.submit(ids(12, 1), 8)
    prefilling = bench.submit(ids(30, 2), 8)
    waiting = bench.submit(ids(12, 1), 8)
    bench.step()
    waiting_too = [bench.submit(ids(13, seed), 8) for seed in (1, 2, 3)]
    bench.cache.flush()
    bench.run()
    for request in (running, prefilling, waiting, *waiting_too):
        prompt = request.tokens[: request.num_prompt_tokens]
        assert answer_of(request) == answer_alone(prompt, 8)
    assert running.cached_tokens == 8
    bench.assert_idle()


@pytest.mark.parametrize(("prompt", "new"), [(300, 1), (257, 1), (256, 2), (200, 100)])
def test_a_request_that_can_never_fit_is_refused_at_once(prompt: int, new: int) -> None:
    bench = Bench(64, 4)
    with pytest.raises(ValueError, match=f"{prompt + new - 1} tokens never fit .* 256 tokens"):
        bench.submit(ids(prompt, 1), new)
    assert not bench.scheduler.has_work
    short = bench.answer(ids(10, 1), 3)
    assert answer_of(short) == answer_alone(ids(10, 1), 3)
    bench.assert_idle()


def test_a_request_id_in_use_is_refused_and_can_be_used_again_afterwards() -> None:
    bench = Bench(16, 4)
    scheduler = bench.scheduler
    running, waiting = Request(1, ids(9, 1), 6), Request(2, ids(9, 2), 6)
    scheduler.submit(running)
    bench.step()
    scheduler.submit(waiting)
    for used in (1, 2):
        with pytest.raises(ValueError, match=f"request_id {used} is in use"):
            scheduler.submit(Request(used, ids(9, 3), 6))
    while scheduler.has_work:
        bench.step()
    assert answer_of(running) == answer_alone(ids(9, 1), 6)
    assert answer_of(waiting) == answer_alone(ids(9, 2), 6)
    again = Request(1, ids(9, 3), 6)
    scheduler.submit(again)
    while scheduler.has_work:
        bench.step()
    assert answer_of(again) == answer_alone(ids(9, 3), 6)
    bench.assert_idle()


def test_a_step_with_the_wrong_number_of_tokens_is_refused_without_change() -> None:
    bench = Bench(16, 4)
    request = bench.submit(ids(9, 1), 2)
    plan = bench.scheduler.plan()
    tokens = bench.model.step(plan)
    for wrong in ([], [1, 2]):
        with pytest.raises(ValueError, match=f"1 requests wait for a token, {len(wrong)} came"):
            bench.scheduler.commit(plan, wrong)
    assert request.num_computed_tokens == 0
    assert bench.scheduler.audit() == []
    bench.scheduler.commit(plan, tokens)
    bench.run()
    bench.assert_idle()


def test_what_is_kept_for_waiting_requests_that_cannot_start_goes_to_the_running_prompt() -> None:
    bench = Bench(64, 16, Limits(max_step_tokens=64, max_running=1))
    long = bench.submit(ids(320, 1))
    bench.submit(ids(320, 2))
    computed = [bench.step().num_tokens for _ in range(5)]
    assert computed == [64] * 5
    assert long.num_computed_tokens == 320
