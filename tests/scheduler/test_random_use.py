"""Any mix of arrivals, lengths, branches, tenants, deadlines, aborts, flushes, memory sizes, orders
and limits is served rightly."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache import DEFAULT, CacheMode, Namespace, PrefixCache
from radix_engine.cache.flat import FlatCache
from scheduler import Limits, Request, State
from scheduler.order import ORDERS
from tests.checking_model import Bench, answer_alone_of, answer_of
from tests.scheduler.steps import step_in_order

MODES = st.sampled_from(
    [CacheMode.DEFAULT] * 5 + [CacheMode.READ_ONLY, CacheMode.WRITE_ONLY, CacheMode.BYPASS]
)
NAMESPACES = st.sampled_from([DEFAULT, DEFAULT, DEFAULT, Namespace(tenant="other")])
BRANCHES = st.sampled_from([0, 0, 0, 1, 2, 3])
KINDS = ("tree", "tree of whole blocks", "flat")


def make_cache(kind: str, num_blocks: int, block_size: int) -> PrefixCache | FlatCache:
    if kind == "flat":
        return FlatCache(num_blocks, block_size)
    return PrefixCache(num_blocks, block_size, partial_blocks=kind == "tree")


@dataclass(frozen=True)
class Arrival:
    step: int
    prompt: tuple[int, ...]
    max_new_tokens: int
    mode: CacheMode
    namespace: Namespace
    stop_token_ids: frozenset[int]
    branches: int
    priority: int
    patience: int | None  # steps until its deadline
    aborted: int  # which of them: itself, or a branch
    aborted_at: int | None  # a step
    aborted_in_it: bool  # after that step was planned, not before


@dataclass(frozen=True)
class Story:
    block_size: int
    num_blocks: int
    limits: Limits
    arrivals: tuple[Arrival, ...]
    flushed_at: frozenset[int]
    kind: str
    order: str
    fair: bool


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    step_tokens = draw(st.integers(1, 40))
    running = draw(st.integers(1, min(step_tokens, 8)))
    return Limits(step_tokens, running, draw(st.integers(0, 4)))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    size = draw(st.sampled_from([1, 4, 16]))
    blocks = draw(st.integers(1, 12))
    steps = st.integers(0, 25)
    arrivals = []
    for _ in range(draw(st.integers(1, 14))):
        # Whole blocks of few kinds, so that prompts collide, and some tokens more.
        kinds = draw(st.lists(st.integers(0, 1), max_size=4))
        rest = draw(st.lists(st.integers(0, 1), min_size=0 if kinds else 1, max_size=size + 1))
        prompt = [kind for kind in kinds for _ in range(size)] + rest
        arrivals.append(
            Arrival(
                step=draw(steps),
                prompt=tuple(prompt),
                max_new_tokens=draw(st.integers(1, 3 * size + 3)),
                mode=draw(MODES),
                namespace=draw(NAMESPACES),
                stop_token_ids=frozenset(draw(st.sets(st.integers(0, 49), max_size=3))),
                branches=draw(BRANCHES),
                priority=draw(st.integers(-1, 1)),
                patience=draw(st.none() | st.none() | st.integers(0, 30)),
                aborted=draw(st.integers(0, 3)),
                aborted_at=draw(st.none() | steps),
                aborted_in_it=draw(st.booleans()),
            )
        )
    flushed_at = draw(st.sets(steps, max_size=2))
    arrivals.sort(key=lambda arrival: arrival.step)
    return Story(
        size,
        blocks,
        draw(limits()),
        tuple(arrivals),
        frozenset(flushed_at),
        draw(st.sampled_from(KINDS)),
        draw(st.sampled_from(sorted(ORDERS))),
        draw(st.booleans()),
    )


def submit(bench: Bench, arrival: Arrival) -> list[Request]:
    """Submit it and its branches, if and only if it can ever fit."""
    room = bench.num_blocks * bench.block_size
    fits = len(arrival.prompt) + arrival.max_new_tokens - 1 <= room
    try:
        request = bench.submit(
            arrival.prompt,
            arrival.max_new_tokens,
            arrival.stop_token_ids,
            mode=arrival.mode,
            namespace=arrival.namespace,
            branches=arrival.branches,
            priority=arrival.priority,
            deadline=None if arrival.patience is None else bench.now + arrival.patience,
        )
    except ValueError:
        assert not fits or arrival.branches >= bench.limits.max_running
        return []
    assert fits
    assert arrival.branches < bench.limits.max_running
    return [request, *request.branches]


def play(story: Story) -> Bench:
    bench = Bench(
        story.num_blocks,
        story.block_size,
        story.limits,
        functools.partial(make_cache, story.kind),
        story.order,
        story.fair,
    )
    todo = list(story.arrivals)
    aborts: dict[int, list[tuple[Request, bool]]] = {}
    cut_short: set[Request] = set()  # aborted, or past their deadline
    first: list[Request] = []  # those that may have branches
    steps = idle = 0
    while todo or bench.scheduler.has_work:
        now = steps + idle
        bench.now = float(now)
        while todo and todo[0].step <= now:
            arrival = todo.pop(0)
            family = submit(bench, arrival)
            first += family[:1]
            if family and arrival.aborted_at is not None:
                request = family[arrival.aborted % len(family)]
                at = max(now, arrival.aborted_at)
                aborts.setdefault(at, []).append((request, arrival.aborted_in_it))
        within: list[Request] = []
        for request, in_it in aborts.pop(now, []):
            if request.state is not State.FINISHED:
                cut_short.add(request)
            if in_it and request.state is not State.FINISHED:
                within.append(request)
            else:
                bench.scheduler.abort(request)
        if now in story.flushed_at:
            bench.cache.flush()
        if not bench.scheduler.has_work:
            idle += 1
            continue
        for ended in step_in_order(bench, within).ended:
            assert ended.reason == "deadline"
            assert ended.request.deadline is not None
            assert ended.request.deadline <= now
            cut_short.add(ended.request)
        steps += 1
    # The one that has run longest is never preempted and gets a token at least in each step.
    assert steps <= sum(r.num_prompt_tokens + r.max_new_tokens for r in bench.requests)
    bench.assert_idle()
    for request in bench.requests:
        assert request.state is State.FINISHED
        expected = answer_alone_of(request)
        if request in cut_short:
            expected = expected[: request.num_new_tokens]
        assert answer_of(request) == expected
    counters = bench.scheduler.counters
    assert counters.requests_aborted == len(cut_short)
    assert counters.requests_finished == len(bench.requests) - len(cut_short)
    counted = counters.cached_tokens + counters.computed_tokens + counters.cached_late_tokens
    if cut_short:
        assert counted <= counters.prompt_tokens
    else:
        assert counted == counters.prompt_tokens
        assert counters.prompt_tokens == sum(request.num_prompt_tokens for request in first)
    return bench


@settings(max_examples=150, deadline=None, derandomize=True)
@given(stories())
def test_any_story_ends_well(story: Story) -> None:
    play(story)


def without_cache(story: Story) -> Story:
    blind = tuple(dataclasses.replace(arrival, mode=CacheMode.BYPASS) for arrival in story.arrivals)
    return dataclasses.replace(story, arrivals=blind)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(stories())
def test_any_story_without_the_cache_stores_nothing(story: Story) -> None:
    bench = play(without_cache(story))
    assert bench.cache.pool.free_blocks == story.num_blocks
    assert bench.scheduler.counters.cached_tokens == 0
    assert bench.scheduler.counters.cached_late_tokens == 0
