"""What is left of a prompt that ends between two of its chunks: exactly what was computed of it."""

from __future__ import annotations

import random

import pytest

from radix_engine.cache import CacheMode, PrefixCache
from radix_engine.cache.audit import walk
from scheduler import Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of, whole_blocks
from tests.scheduler.test_mixed_requests import prompt_of, serve

SIZES = pytest.mark.parametrize("size", [1, 4, 16])


def after_chunks(bench: Bench, size: int, chunks: int) -> Request:
    """A prompt of 6 blocks, of which so many chunks of 2 blocks are computed."""
    request = bench.submit(ids(6 * size, 1), 4)
    for _ in range(chunks):
        bench.step()
    assert request.num_computed_tokens == 2 * size * chunks
    return request


def churn(bench: Bench) -> None:
    """More than all memory is written anew, twice."""
    for seed in range(2 * bench.num_blocks):
        bench.answer(ids(3 * bench.block_size + 1, 100 + seed))


@SIZES
@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("how", ["abort", "abort in a step", "preempt"])
def test_what_was_computed_stays_to_the_block_and_all_else_is_free(
    size: int, chunks: int, how: str
) -> None:
    bench = Bench(12, size, Limits(max_step_tokens=2 * size, max_running=1))
    request = after_chunks(bench, size, chunks)
    if how == "abort in a step":  # planned, and not computed any more
        bench.step(abort=[request])
    elif how == "abort":
        bench.scheduler.abort(request)
    else:
        bench.scheduler._requests.preempt(request)
        assert request.state is State.WAITING
    pool = bench.cache.pool
    assert (pool.tree_blocks, pool.private_blocks, pool.in_flight_blocks) == (2 * chunks, 0, 0)
    assert pool.free_blocks == 12 - 2 * chunks
    assert bench.cache.evictable_blocks == 2 * chunks
    assert bench.cache.match(request.run).num_tokens == 2 * size * chunks
    assert bench.scheduler.audit() == []
    bench.run()
    if how == "preempt":
        assert answer_of(request) == answer_alone_of(request)
    churn(bench)
    assert bench.cache.match(request.run).num_tokens == 0
    again = bench.answer(ids(6 * size, 1), 4)
    assert answer_of(again) == answer_alone_of(again)
    bench.assert_idle()


@SIZES
def test_many_short_requests_in_chunks_leave_every_block_free_or_evictable(size: int) -> None:
    draw = random.Random(size)
    bench = Bench(20, size, Limits(max_step_tokens=size + 1, max_running=2))
    prompts = [prompt_of(draw, 5 * size + 3, size) for _ in range(200 if size > 1 else 500)]
    aborted = serve(bench, draw, prompts, 5)
    assert aborted
    bench.assert_idle()
    assert bench.cache.pool.free_blocks + bench.cache.evictable_blocks == 20
    for request in bench.requests:
        expected = answer_alone_of(request)
        done = answer_of(request)
        assert done == (expected[: len(done)] if request in aborted else expected)


def shape(cache: PrefixCache) -> tuple[int, int, int]:
    return cache.pool.tree_blocks, sum(1 for _ in walk(cache.root)), cache.version


@SIZES
@pytest.mark.parametrize("mode", [CacheMode.READ_ONLY, CacheMode.BYPASS])
@pytest.mark.parametrize("stored", [0, 2])
@pytest.mark.parametrize("chunks", [1, 2, None])
def test_a_request_that_stores_nothing_changes_nothing_in_chunks_nor_aborted_between_them(
    size: int, mode: CacheMode, stored: int, chunks: int | None
) -> None:
    bench = Bench(16, size, Limits(max_step_tokens=2 * size, max_running=1), whole_blocks)
    if stored:
        bench.answer(ids(stored * size, 1))
    before = shape(bench.cache)
    assert before[0] == stored
    request = bench.submit(ids(7 * size, 1), 3, mode=mode)
    for _ in range(20 if chunks is None else chunks):
        if bench.scheduler.has_work:
            bench.step()
            assert shape(bench.cache) == before
    cached = stored * size if mode.reads else 0
    assert request.cached_tokens == cached
    if chunks is None:
        assert answer_of(request) == answer_alone_of(request)
    else:
        assert 0 < request.num_computed_tokens < 7 * size
        bench.step(abort=[request])
    assert request.state is State.FINISHED
    assert shape(bench.cache) == before
    bench.assert_idle()


@SIZES
def test_a_request_that_only_reads_and_ends_inside_a_run_stores_nothing(size: int) -> None:
    bench = Bench(16, size, Limits(max_step_tokens=2 * size, max_running=1), whole_blocks)
    bench.answer([*ids(4 * size, 1), 0])
    blocks = bench.cache.pool.tree_blocks
    request = bench.submit([*ids(2 * size, 1), *ids(4 * size, 2)], 3, mode=CacheMode.READ_ONLY)
    bench.run()
    assert request.cached_tokens == 2 * size
    assert bench.cache.pool.tree_blocks == blocks
    assert bench.cache.match(request.run).num_tokens == 2 * size
    assert bench.cache.match(bench.requests[0].run).num_tokens == 4 * size
    bench.assert_idle()
