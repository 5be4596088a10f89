"""Requests go on while a block of theirs, or of the tree's, is taken out of use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radix_engine.cache import PrefixCache, token_array
from radix_engine.cache.flat import FlatCache
from scheduler import Limits, Request, State, StepPlan
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone_of, answer_of, whole_blocks

SIZE = 4
MakeCache = Callable[[int, int], PrefixCache | FlatCache]
INDICES = pytest.mark.parametrize("make_cache", [whole_blocks, PrefixCache, FlatCache])


def bench_of(make_cache: MakeCache, blocks: int = 32, **limits: int) -> Bench:
    limits.setdefault("max_step_tokens", 64)
    return Bench(blocks, SIZE, Limits(**limits), make_cache)


def run(bench: Bench) -> None:
    """Step to the end. Private tails in quarantine count in requests' tables and not in the books,
    so the sums of a step are not compared."""
    for _ in range(200):
        if not bench.scheduler.has_work:
            return
        plan = bench.scheduler.plan()
        compute(bench, plan)
    raise AssertionError("no end in sight")


def compute(bench: Bench, plan: StepPlan) -> None:
    bench.scheduler.commit(plan, bench.model.step(plan))
    assert bench.scheduler.audit() == []


def put_in_quarantine(bench: Bench, block: int) -> None:
    """A block that two call their own, one of them wrongly."""
    running = list(bench.scheduler._running)
    private = [request.private_tail(SIZE) for request in running]
    assert bench.cache.quarantine([*private, token_array([block])])
    assert bench.cache.pool.quarantined == {block}
    assert bench.scheduler.audit() == []


@INDICES
@pytest.mark.parametrize("bad", [0, 3])
def test_a_request_gets_all_the_memory_but_the_block_that_is_out_of_use(
    make_cache: MakeCache, bad: int
) -> None:
    bench = bench_of(make_cache, 8)
    bench.answer(ids(17, 1))
    match = bench.cache.match(bench.requests[0].run)
    lease = bench.cache.lease(match)
    block = lease.blocks()[bad]
    bench.cache.release(lease)
    bench.cache.pool.free_from_tree(token_array([block]))  # the fault: free, and in the tree
    assert bench.scheduler.quarantine()
    assert bench.cache.available_blocks == 7
    request = bench.submit(ids(25, 2), 4)  # 28 tokens: all 7
    bench.run()
    assert answer_of(request) == answer_alone_of(request)
    assert bench.cache.pool.quarantined == {block}


@INDICES
def test_what_never_fits_without_the_block_is_given_up_and_the_next_is_served(
    make_cache: MakeCache,
) -> None:
    bench = bench_of(make_cache, 4)
    bench.cache.quarantine([token_array([2])])
    too_long, short = bench.submit(ids(14, 1), 2), bench.submit(ids(6, 2), 2)
    bench.run()
    assert answer_of(short) == answer_alone_of(short)
    assert too_long.state is State.FINISHED
    assert answer_of(too_long) == []


@INDICES
@pytest.mark.parametrize("place", [1, 3])
def test_a_running_request_whose_own_block_is_taken_out_of_use_goes_on_unpublished(
    make_cache: MakeCache, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(make_cache, max_step_tokens=9, max_running=4)
    request, other = bench.submit(ids(30, 1), 8), bench.submit(ids(10, 2), 12)
    monkeypatch.setattr(type(bench.cache), "announce", lambda *_: False)
    monkeypatch.setattr(type(bench.cache), "publish", later(bench, request, place))
    run(bench)
    block = next(iter(bench.cache.pool.quarantined))
    for each in (request, other):
        assert answer_of(each) == answer_alone_of(each)
    assert bench.cache.match(request.whole_run).num_tokens // SIZE == place
    assert bench.cache.match(other.whole_run).num_tokens >= 20
    assert bench.cache.audit([]) == []
    assert bench.cache.available_blocks == 31
    assert block not in (bench.cache.allocate(31) or [block])


def later(bench: Bench, request: Request, place: int) -> Callable[..., object]:
    """Publishing that finds the request's block at ``place`` to be somebody else's as well, when it
    is first asked to store it."""
    publish = type(bench.cache).publish

    def publish_after_fault(
        cache: object, lease: object, run: bytes, blocks: object, payload: bytes
    ) -> object:
        first = lease is request.lease and not bench.cache.pool.quarantined
        if first and request.num_computed_tokens // SIZE > place:
            put_in_quarantine(bench, request.block_table[place])
        return publish(cache, lease, run, blocks, payload)

    return publish_after_fault


@INDICES
def test_a_step_in_flight_with_a_block_out_of_use_is_committed_for_all(
    make_cache: MakeCache,
) -> None:
    bench = bench_of(make_cache)
    head = ids(16, 1)
    owner, sibling = bench.submit([*head, 1, 2], 6), bench.submit([*head, 3, 4], 6)
    other = bench.submit(ids(10, 2), 6)
    plan = bench.scheduler.plan()
    assert bench.cache.pool.in_flight_blocks >= 4
    tokens = bench.model.step(plan)
    block = owner.block_table[2]
    put_in_quarantine(bench, block)
    assert sibling.block_table[2] == block
    bench.scheduler.commit(plan, tokens)
    assert bench.cache.match(owner.run).num_tokens == 8
    run(bench)
    for each in (owner, sibling, other):
        assert answer_of(each) == answer_alone_of(each)
    assert bench.cache.available_blocks == 31
    again = bench.answer([*head, 1, 2], 6)
    assert again.cached_tokens == 8
    assert answer_of(again) == answer_alone_of(again)
    assert bench.cache.match(owner.run).num_tokens >= 16


@INDICES
def test_a_request_with_a_block_out_of_use_can_be_preempted_and_aborted(
    make_cache: MakeCache,
) -> None:
    for aborted in (True, False):
        bench = bench_of(make_cache)
        request = bench.submit(ids(18, 1), 6)
        bench.step()
        tail = request.private_tail(SIZE)
        put_in_quarantine(bench, tail[0])
        if aborted:
            bench.scheduler.abort(request)
        else:
            bench.scheduler._requests.preempt(request)
            run(bench)
            assert answer_of(request) == answer_alone_of(request)
        assert bench.scheduler.audit() == []
        assert bench.cache.available_blocks == 31
