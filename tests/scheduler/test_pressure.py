"""More is wanted than there is memory: what is sent back, how often, and who is given up."""

from __future__ import annotations

import random

import pytest

from scheduler import Ended, Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of
from tests.scheduler.steps import assert_idle_but, quarantine, step_in_order


@pytest.mark.parametrize("size", [1, 4, 16])
def test_requests_that_are_preempted_twice_stream_each_token_once_and_in_order(size: int) -> None:
    bench = Bench(12, size)
    requests = [bench.submit(ids(2 * size, seed), 8 * size) for seed in range(4)]
    streams: dict[Request, list[int]] = {request: [] for request in requests}
    while bench.scheduler.has_work:
        bench.step()
        for request, token, _ in bench.results:
            streams[request].append(token)
    assert max(request.preemptions for request in requests) >= 2
    for request in requests:
        assert streams[request] == answer_of(request) == answer_alone_of(request)
    bench.assert_idle()


def test_one_that_outgrows_what_is_left_of_the_memory_ends_alone_and_the_others_go_on() -> None:
    bench = Bench(8, 4)
    large, small = bench.submit(ids(8, 1), 20), bench.submit(ids(6, 2), 10)
    bench.step()
    quarantine(bench, 3)  # 20 tokens still have a place, 27 will be computed
    ended: list[Ended] = []
    while bench.scheduler.has_work:
        ended += bench.step().ended
    assert ended == [Ended(large, "memory")]
    assert large.state is State.FINISHED
    assert answer_of(large) == answer_alone_of(large)[:13], "21 tokens, the last not computed"
    assert answer_of(small) == answer_alone_of(small)
    assert small.preemptions == 1
    assert bench.scheduler.counters.requests_aborted == 1
    later = bench.answer(ids(9, 3), 4)
    assert answer_of(later) == answer_alone_of(later)
    assert_idle_but(bench, 3)


def test_one_that_waits_for_more_than_is_left_of_the_memory_ends_and_the_others_go_on() -> None:
    bench = Bench(8, 4)
    running = bench.submit(ids(6, 1), 10)
    bench.step()
    quarantine(bench, 3)
    large = bench.submit(ids(24, 2), 2)  # 6 blocks, and 5 are left
    behind = [bench.submit(ids(6, seed), 3) for seed in range(3, 6)]
    ended: list[Ended] = []
    while bench.scheduler.has_work:
        ended += bench.step().ended
    assert ended == [Ended(large, "memory")]
    for request in (running, *behind):
        assert answer_of(request) == answer_alone_of(request)
    assert_idle_but(bench, 3)


def test_one_that_was_preempted_and_does_not_fit_any_more_ends_and_those_behind_it_go_on() -> None:
    bench = Bench(8, 4)
    first, large = bench.submit(ids(8, 1), 12), bench.submit(ids(12, 2), 12)
    while not large.preemptions:
        bench.step()
    generated = answer_of(large)
    assert len(large.tokens) > 12
    behind = bench.submit(ids(6, 3), 3)
    bench.scheduler.abort(first)
    bench.cache.evict(8)
    quarantine(bench, 5)  # 12 tokens have a place
    plan = bench.step()
    assert plan.ended == (Ended(large, "memory"),)
    assert answer_of(large) == generated == answer_alone_of(large)[: len(generated)]
    bench.run()
    assert answer_of(behind) == answer_alone_of(behind)
    assert_idle_but(bench, 5)


def test_what_a_preemption_gives_back_covers_what_all_others_need_at_a_blocks_edge() -> None:
    bench = Bench(20, 16)
    requests = [bench.submit(ids(16, seed), 34) for seed in range(8)]
    plans = [bench.step() for _ in range(17)]
    assert [len(plan.spans) for plan in plans] == [8] * 17
    assert not any(plan.preempted for plan in plans)
    assert bench.cache.pool.free_blocks == 4, "8 requests with 2 full blocks each"
    plan = bench.step()
    # Four take the free blocks; the last one's two go to the fifth and the sixth; the seventh is
    # now the last.
    assert plan.preempted == (requests[7], requests[6])
    assert [span.request for span in plan.spans] == requests[:6]
    assert bench.cache.available_blocks == 2
    bench.run()
    assert all(answer_of(request) == answer_alone_of(request) for request in requests)
    bench.assert_idle()


@pytest.mark.parametrize(
    ("overcommit", "seed"), [(2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (4, 1), (4, 6), (4, 10)]
)
def test_50_mixed_requests_over_too_little_memory_are_preempted_seldom_and_recompute_little(
    overcommit: int, seed: int
) -> None:
    draw = random.Random(seed)
    sizes = [(draw.randint(1, 60), draw.randint(1, 240)) for _ in range(50)]
    wanted = sum(-(-(prompt + new) // 16) for prompt, new in sizes)
    bench = Bench(wanted // overcommit, 16, Limits(max_step_tokens=512, max_running=64))
    for number, (prompt, new) in enumerate(sizes[:25]):
        bench.submit(ids(prompt, number), new)
    for number, (prompt, new) in enumerate(sizes[25:]):
        bench.submit(ids(prompt, 25 + number), new)
        step_in_order(bench)
    while bench.scheduler.has_work:
        step_in_order(bench)
    assert bench.scheduler.counters.preemptions > 0
    assert max(request.preemptions for request in bench.requests) <= 4
    assert bench.computed <= 2 * sum(prompt + new - 1 for prompt, new in sizes)
    assert all(answer_of(request) == answer_alone_of(request) for request in bench.requests)
    bench.assert_idle()
