"""Hundreds of different requests over far too little memory: nothing is lost, nothing is wrong."""

from __future__ import annotations

import random

import pytest

from radix_engine.cache import CacheMode
from scheduler import Limits, Request
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of

MODES = [CacheMode.DEFAULT] * 8 + [CacheMode.READ_ONLY, CacheMode.BYPASS]


def prompt_of(draw: random.Random, most: int, size: int) -> list[int]:
    """Some begin alike, and part at a block's boundary or inside a block."""
    head = ids(draw.choice([0, 1, size - 1, size, 2 * size, 2 * size + 1, most]), draw.randrange(3))
    length = draw.randint(1, most)
    return [*head, *ids(length, draw.randrange(20))][:length]


def serve(
    bench: Bench, draw: random.Random, prompts: list[list[int]], most_new: int
) -> set[Request]:
    """Submit them in bursts, abort some at any time; those aborted."""
    aborted: set[Request] = set()
    todo = prompts[::-1]
    while todo or bench.scheduler.has_work:
        while todo and (draw.random() < 0.6 or not bench.scheduler.has_work):
            new = draw.randint(1, most_new)
            stops = frozenset(draw.sample(range(50), 2))
            bench.submit(todo.pop(), new, stops, mode=draw.choice(MODES))
        if draw.random() < 0.08 and bench.scheduler.has_work:
            request = draw.choice(list(bench.scheduler.requests()))
            bench.scheduler.abort(request)
            aborted.add(request)
        if bench.scheduler.has_work:
            bench.step()
    return aborted


@pytest.mark.parametrize(
    ("size", "blocks", "step_tokens", "running"), [(1, 90, 24, 8), (4, 24, 17, 6), (16, 9, 40, 8)]
)
def test_200_mixed_requests_leak_no_block_and_answer_as_if_alone(
    size: int, blocks: int, step_tokens: int, running: int
) -> None:
    draw = random.Random(size)
    bench = Bench(blocks, size, Limits(step_tokens, running, max_passed_by=5))
    prompts = [prompt_of(draw, size * blocks // 2, size) for _ in range(200)]
    aborted = serve(bench, draw, prompts, 46)
    bench.assert_idle()
    counters = bench.scheduler.counters
    assert counters.preemptions > 5
    assert counters.cached_tokens > 100
    assert bench.cache.counters.evicted_blocks > blocks
    assert len(aborted) > 5
    assert counters.requests_aborted == len(aborted)
    assert counters.requests_finished == 200 - len(aborted)
    for request in bench.requests:
        expected = answer_alone_of(request)
        if request in aborted:
            assert answer_of(request) == expected[: request.num_new_tokens]
        else:
            assert answer_of(request) == expected


@pytest.mark.parametrize("size", [4, 16])
def test_500_short_requests_in_chunks_of_no_whole_blocks_leak_no_block(size: int) -> None:
    draw = random.Random(size)
    bench = Bench(20, size, Limits(max_step_tokens=size + 1, max_running=4))
    prompts = [prompt_of(draw, 5 * size + 3, size) for _ in range(500)]
    aborted = serve(bench, draw, prompts, 5)
    bench.assert_idle()
    assert all(
        answer_of(request) == answer_alone_of(request)
        for request in bench.requests
        if request not in aborted
    )
    bench.cache.flush()
    assert bench.cache.pool.free_blocks == 20
