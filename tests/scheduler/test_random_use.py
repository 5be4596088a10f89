"""Any mix of arrivals, lengths, aborts, flushes, memory sizes and limits is served rightly."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache import DEFAULT, CacheMode, Namespace, PrefixCache
from radix_engine.cache.flat import FlatCache
from scheduler import Limits, Request, State
from tests.checking_model import Bench, answer_alone_of, answer_of

MODES = st.sampled_from([CacheMode.DEFAULT] * 5 + [CacheMode.READ_ONLY, CacheMode.BYPASS])
NAMESPACES = st.sampled_from([DEFAULT, DEFAULT, DEFAULT, Namespace(tenant="other")])
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
                aborted_at=draw(st.none() | steps),
                aborted_in_it=draw(st.booleans()),
            )
        )
    flushed_at = draw(st.sets(steps, max_size=2))
    arrivals.sort(key=lambda arrival: arrival.step)
    kind = draw(st.sampled_from(KINDS))
    return Story(size, blocks, draw(limits()), tuple(arrivals), frozenset(flushed_at), kind)


def submit(bench: Bench, arrival: Arrival) -> Request | None:
    """Submit it, if and only if it can ever fit."""
    room = bench.num_blocks * bench.block_size
    try:
        request = bench.submit(
            arrival.prompt,
            arrival.max_new_tokens,
            arrival.stop_token_ids,
            mode=arrival.mode,
            namespace=arrival.namespace,
        )
    except ValueError:
        assert len(arrival.prompt) + arrival.max_new_tokens - 1 > room
        return None
    assert len(arrival.prompt) + arrival.max_new_tokens - 1 <= room
    return request


def step_fairly(bench: Bench, abort: list[Request]) -> None:
    """One step, in which nobody is passed too often and who goes first is passed by nobody."""
    bound = bench.limits.max_passed_by
    waiting = [request for request in bench.scheduler.requests() if request.state is State.WAITING]
    first = [r for r in waiting if r.preemptions > 0 or r.passed_by >= bound]
    plan = bench.step(abort)
    started = [span.request for span in plan.spans if span.request in waiting]
    for request in [] if abort else first:  # else somebody may have started and been sent back
        if request.state is State.WAITING:
            assert not any(other.arrival > request.arrival for other in started)
    assert all(r.passed_by <= bound for r in waiting if r.state is State.WAITING)


def play(story: Story) -> Bench:
    bench = Bench(
        story.num_blocks, story.block_size, story.limits, functools.partial(make_cache, story.kind)
    )
    todo = list(story.arrivals)
    aborts: dict[int, list[tuple[Request, bool]]] = {}
    aborted: set[Request] = set()
    steps = idle = 0
    while todo or bench.scheduler.has_work:
        now = steps + idle
        while todo and todo[0].step <= now:
            arrival = todo.pop(0)
            request = submit(bench, arrival)
            if request is not None and arrival.aborted_at is not None:
                aborts.setdefault(max(now, arrival.aborted_at), []).append(
                    (request, arrival.aborted_in_it)
                )
        within: list[Request] = []
        for request, in_it in aborts.pop(now, []):
            if request.state is not State.FINISHED:
                aborted.add(request)
            if in_it and request.state is not State.FINISHED:
                within.append(request)
            else:
                bench.scheduler.abort(request)
        if now in story.flushed_at:
            bench.cache.flush()
        if not bench.scheduler.has_work:
            idle += 1
            continue
        step_fairly(bench, within)
        steps += 1
    # The one that has run longest is never preempted and gets a token at least in each step.
    assert steps <= sum(r.num_prompt_tokens + r.max_new_tokens for r in bench.requests)
    bench.assert_idle()
    for request in bench.requests:
        expected = answer_alone_of(request)
        if request in aborted:
            expected = expected[: request.num_new_tokens]
        assert answer_of(request) == expected
    counters = bench.scheduler.counters
    counted = counters.cached_tokens + counters.computed_tokens + counters.cached_late_tokens
    if aborted:
        assert counted <= counters.prompt_tokens
    else:
        assert counted == counters.prompt_tokens
        assert counters.prompt_tokens == sum(r.num_prompt_tokens for r in bench.requests)
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
