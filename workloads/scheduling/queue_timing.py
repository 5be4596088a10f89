"""What the scheduler does in a step, timed: the queue's part, admission, and 256 that decode.

Wall time by ``perf_counter``, medians over many steps. The queue's methods are timed where the
scheduler calls them, in steps of their own, since the timing adds to what is around it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from radix_engine.cache import PrefixCache
from radix_engine.model.batch import Span, flatten
from scheduler import Limits, Request, Scheduler
from workloads.scheduling.queue_load import BLOCK, STEP_REQUESTS, QueueLoad, shared_head

DECODING = 256
_CONTEXT = 1_024
_OF_THE_QUEUE = ("add", "next", "put_back", "started", "ended", "stored", "settle")
_OF_ITS_TRIE = ("cached_tokens", "blocked")


class QueueTimer:
    """Adds up the time in the methods of a scheduler's queue that a step calls."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.seconds = 0.0
        queue: Any = scheduler._waiting
        (line,) = queue._lines.values()
        self._methods = [(queue, name) for name in _OF_THE_QUEUE]
        self._methods += [(line.trie, name) for name in _OF_ITS_TRIE]
        for owner, name in self._methods:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def stop(self) -> None:
        """Let the queue go on untimed."""
        for owner, name in self._methods:
            delattr(owner, name)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = perf_counter()
            result = method(*args)
            self.seconds += perf_counter() - start
            return result

        return timed


def step_times(
    load: QueueLoad, steps: int, after_step: Callable[[], object] = lambda: None
) -> dict[str, list[float]]:
    """Milliseconds in each of ``steps`` steps: ``order``, the queue's part, arrivals included;
    ``plan``, the whole plan with its 64 admissions; ``commit``; ``arrive``, 64 arrivals.
    ``after_step`` is called, untimed, after each.
    """
    times: dict[str, list[float]] = {"order": [], "plan": [], "commit": [], "arrive": []}
    for step in range(2 * steps):
        arrivals = [load.request() for _ in range(STEP_REQUESTS)]
        timer = QueueTimer(load.scheduler) if step % 2 else None
        start = perf_counter()
        plan = load.scheduler.plan()
        planned = perf_counter()
        if len(plan.spans) != STEP_REQUESTS:
            raise RuntimeError(f"{len(plan.spans)} were admitted instead of {STEP_REQUESTS}")
        load.finish(plan)
        committed = perf_counter()
        for request in arrivals:
            load.scheduler.submit(request)
        arrived = perf_counter()
        if timer is not None:
            timer.stop()
            times["order"].append(1000 * timer.seconds)
        else:
            times["plan"].append(1000 * (planned - start))
            times["commit"].append(1000 * (committed - planned))
            times["arrive"].append(1000 * (arrived - committed))
        after_step()
    return times


def shared_head_times(waiting: int, rounds: int, progress: Callable[[int], object]) -> list[float]:
    """Milliseconds of the queue's part in the step that stores a head which all share."""
    times = []
    scheduler = shared_head(waiting + rounds, progress)
    for _ in range(rounds):
        timer = QueueTimer(scheduler)
        plan = scheduler.plan()
        scheduler.commit(plan, [1] * len(plan.sampling))
        timer.stop()
        times.append(1000 * timer.seconds)
        for request in list(scheduler._running):
            scheduler.abort(request)
        scheduler.cache.flush()  # so that the head is unknown again
    return times


def decode_times(steps: int) -> dict[str, list[float]]:
    """Milliseconds a step with 256 requests that decode: ``plan``, ``batch`` (the spans and their
    flat arrays), ``commit`` (with the check of all blocks' sum)."""
    rng = np.random.default_rng(2)
    head = rng.integers(0, 50_000, _CONTEXT)
    cache = PrefixCache(DECODING * 2 * _CONTEXT // BLOCK, BLOCK)
    limits = Limits(max_step_tokens=16 * DECODING, max_running=DECODING)
    scheduler = Scheduler(cache, limits)
    for number in range(1, DECODING + 1):
        own = rng.integers(0, 50_000, 64 + int(rng.integers(64)))  # blocks fill at different steps
        scheduler.submit(Request(number, np.concatenate((head, own)).tolist(), _CONTEXT))
    times: dict[str, list[float]] = {"plan": [], "batch": [], "commit": []}
    while len(times["plan"]) < steps:
        start = perf_counter()
        plan = scheduler.plan()
        planned = perf_counter()
        flatten(
            [
                Span(span.tokens, span.start, span.request.block_table, int(span.samples))
                for span in plan.spans
            ]
        )
        built = perf_counter()
        tokens = [number % 50_000 for number in range(len(plan.sampling))]
        start_commit = perf_counter()
        scheduler.commit(plan, tokens)
        problem = scheduler.sum_problem()
        committed = perf_counter()
        if problem is not None:
            raise RuntimeError(problem)
        if plan.num_tokens == DECODING == len(tokens):
            times["plan"].append(1000 * (planned - start))
            times["batch"].append(1000 * (built - planned))
            times["commit"].append(1000 * (committed - start_commit))
    return times
