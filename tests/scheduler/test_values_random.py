"""Any mix of requests that want values and others leaves every value right, and none missing."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache import CacheMode, PrefixCache
from scheduler import Limits, Request, State
from tests.checking_model import answer_alone_of, answer_of
from tests.scheduler.valuing import ValuingBench, assert_has_its_values

MODES = st.sampled_from([CacheMode.DEFAULT] * 4 + [CacheMode.READ_ONLY, CacheMode.WRITE_ONLY])


@dataclass(frozen=True)
class Arrival:
    step: int
    prompt: tuple[int, ...]
    max_new_tokens: int
    mode: CacheMode
    branches: int
    wants: bool
    aborted_at: int | None


@dataclass(frozen=True)
class Story:
    block_size: int
    num_blocks: int
    partial: bool
    limits: Limits
    arrivals: tuple[Arrival, ...]
    flushed_at: frozenset[int]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    size = draw(st.sampled_from([1, 4, 16]))
    step_tokens = draw(st.integers(1, 40))
    steps = st.integers(0, 20)
    arrivals = []
    for _ in range(draw(st.integers(2, 10))):
        # Whole blocks of few kinds, so that prompts collide, and some tokens more.
        kinds = draw(st.lists(st.integers(0, 1), max_size=4))
        rest = draw(st.lists(st.integers(0, 1), min_size=0 if kinds else 1, max_size=size + 1))
        arrivals.append(
            Arrival(
                step=draw(steps),
                prompt=(*(kind for kind in kinds for _ in range(size)), *rest),
                max_new_tokens=draw(st.integers(1, size + 3)),
                mode=draw(MODES),
                branches=draw(st.sampled_from([0, 0, 0, 1, 2])),
                wants=draw(st.sampled_from([True, True, False])),
                aborted_at=draw(st.none() | st.none() | steps),
            )
        )
    return Story(
        size,
        draw(st.integers(6, 14)),
        draw(st.booleans()),
        Limits(step_tokens, draw(st.integers(1, min(step_tokens, 6)))),
        tuple(sorted(arrivals, key=lambda arrival: arrival.step)),
        frozenset(draw(st.sets(steps, max_size=1))),
    )


def submit(bench: ValuingBench, arrival: Arrival) -> list[Request]:
    """The request and its branches; none where it can never run."""
    ask = bench.ask if arrival.wants else bench.submit
    try:
        request = ask(
            arrival.prompt, arrival.max_new_tokens, mode=arrival.mode, branches=arrival.branches
        )
    except ValueError:
        return []
    return [request, *request.branches]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(stories())
def test_any_story_leaves_all_values_right(story: Story) -> None:
    make = functools.partial(PrefixCache, partial_blocks=story.partial)
    bench = ValuingBench(story.num_blocks, story.block_size, story.limits, make_cache=make)
    todo = list(story.arrivals)
    aborts: dict[int, list[Request]] = {}
    wanting: list[Request] = []
    aborted: set[Request] = set()
    now = 0
    while todo or bench.scheduler.has_work:
        while todo and todo[0].step <= now:
            arrival = todo.pop(0)
            family = submit(bench, arrival)
            wanting += family if arrival.wants else []
            if family and arrival.aborted_at is not None:
                aborts.setdefault(max(now, arrival.aborted_at), []).append(family[0])
        if now in story.flushed_at:
            bench.cache.flush()
        within = [r for r in aborts.pop(now, []) if r.state is not State.FINISHED]
        aborted.update(within)
        if bench.scheduler.has_work:
            bench.step(
                abort=within
            )  # after it was planned: others may stand on what these announce
            bench.assert_stored_values_are_right()
        now += 1
    bench.assert_idle()
    for request in bench.requests:
        if request not in aborted:
            assert answer_of(request) == answer_alone_of(request)
    for request in wanting:
        if request not in aborted:
            assert_has_its_values(request)
