"""Each order, as the scheduler uses it: who runs when one runs at a time."""

from __future__ import annotations

import random

import pytest

from scheduler import Limits, Request, State
from scheduler.order import ORDERS
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of


def single(order: str, **limits: int) -> Bench:
    return Bench(64, 4, Limits(max_step_tokens=128, max_running=1, **limits), order=order)


def one_at_a_time(bench: Bench) -> list[Request]:
    """Run to the end; the requests in the order in which they ran."""
    order = []
    for plan in bench.run():
        (span,) = plan.spans
        if span.request not in order:
            order.append(span.request)
    return order


def test_first_come_first_served_whatever_is_cached() -> None:
    bench = single("fcfs")
    bench.answer(ids(16, 1))
    requests = [bench.submit(ids(20, seed), 2, priority=seed) for seed in (2, 1, 3, 1)]
    assert one_at_a_time(bench) == requests
    assert [request.cached_tokens for request in requests] == [0, 16, 0, 16]


def test_the_higher_priority_goes_first_and_then_the_earlier_arrival() -> None:
    bench = single("priority")
    priorities = [0, 5, -1, 5, 0, 7]
    requests = [bench.submit(ids(9, n), 2, priority=p) for n, p in enumerate(priorities)]
    assert [requests.index(request) for request in one_at_a_time(bench)] == [5, 1, 3, 0, 4, 2]


def test_a_higher_priority_that_comes_later_goes_first_but_not_for_ever() -> None:
    bench = single("priority", max_passed_by=3)
    low = bench.submit(ids(9, 99), priority=0)
    order: list[Request] = []
    for seed in range(6):
        bench.submit(ids(9, seed), priority=1)
        order += [span.request for span in bench.step().spans]
    assert order.index(low) == 3


def hrrn_by_hand(bench: Bench) -> list[Request]:
    """Arrivals 0 s, 6 s and 9 s, of 40, 10 and 4 tokens; it is 10 s now."""
    requests = []
    for at, length, seed in ((0.0, 40, 1), (6.0, 10, 2), (9.0, 4, 3)):
        bench.now = at
        requests.append(bench.submit(ids(length, seed)))
    bench.now = 10.0
    return requests


def test_the_highest_response_ratio_goes_first() -> None:
    bench = single("hrrn")
    long, middle, short = hrrn_by_hand(bench)
    # Waits by tokens: 10 / 40 = 1 / 4, 4 / 10, 1 / 4: the middle one, then by arrival.
    assert one_at_a_time(bench) == [middle, long, short]


def test_response_ratios_change_as_time_goes_on() -> None:
    bench = single("hrrn")
    long, middle, short = hrrn_by_hand(bench)
    assert [span.request for span in bench.step().spans] == [middle]
    bench.now = 30.0  # 30 / 40 and 21 / 4
    assert one_at_a_time(bench) == [short, long]


def test_only_what_is_not_cached_counts_for_a_response_ratio() -> None:
    bench = single("hrrn")
    bench.answer(ids(32, 1))
    long, middle, short = hrrn_by_hand(bench)
    # 10 / (40 - 32), 4 / 10 and 1 / 4.
    assert one_at_a_time(bench) == [long, middle, short]


def few_shot(heads: int, questions: int, seed: int) -> list[list[int]]:
    """Prompts of a head of 64 tokens and a question of 20, shuffled."""
    prompts = [
        [*ids(64, head), *ids(20, 100 + question)]
        for head in range(heads)
        for question in range(questions)
    ]
    random.Random(seed).shuffle(prompts)
    return prompts


@pytest.mark.parametrize("blocks", [1000, 60])
def test_depth_first_computes_each_head_of_a_few_shot_batch_once_also_in_little_memory(
    blocks: int,
) -> None:
    limits = Limits(max_step_tokens=256, max_running=8, max_passed_by=57 * 8)
    bench = Bench(blocks, 16, limits, order="dfs")
    for prompt in few_shot(57, 8, seed=1):
        bench.submit(prompt)
    bench.run()
    # A head is 4 blocks; 84 tokens are 5 blocks, of which the last is a question's own, and 4 more.
    assert bench.computed == 57 * 4 * 16 + 57 * 8 * (16 + 4) == 12_768
    counters = bench.scheduler.counters
    assert counters.computed_tokens == 12_768
    assert counters.cached_tokens == 57 * 7 * 64
    assert counters.preemptions == counters.recomputed_tokens == 0
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    bench.assert_idle()
    stored = 57 * 4 + 57 * 8  # blocks: more than 60, less than 1000
    assert (bench.cache.counters.evicted_blocks > 0) == (blocks < stored)


def test_first_come_first_served_computes_heads_again_in_little_memory() -> None:
    limits = Limits(max_step_tokens=256, max_running=8, max_passed_by=57 * 8)
    bench = Bench(60, 16, limits, order="fcfs")
    for prompt in few_shot(57, 8, seed=1):
        bench.submit(prompt)
    bench.run()
    assert bench.computed > 2 * 12_768


@pytest.mark.parametrize("order", ORDERS)
def test_whatever_the_order_no_more_later_arrivals_pass_than_may(order: str) -> None:
    bench = Bench(40, 4, Limits(max_step_tokens=16, max_running=2, max_passed_by=5), order=order)
    draw = random.Random(3)
    bench.answer(ids(16, 0))
    first = bench.submit(ids(30, 99), priority=-1)
    for number in range(80):
        bench.now = float(number)
        head = ids(16, 0) if draw.random() < 0.7 else ids(16, number)
        bench.submit([*head, number], 2, priority=draw.randrange(3))
        bench.step()
        if first.state is State.WAITING:
            assert bench.scheduler.passed_by(first) <= 5
    assert first.state is State.FINISHED
    bench.run()
    assert bench.scheduler.most_passed_by <= 5
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)


def test_an_order_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ValueError, match=r"order must be one of lpm, dfs, .*, not 'best'"):
        Bench(8, 4, order="best")
