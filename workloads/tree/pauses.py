"""The longest single operation of a tree in use, with the garbage collector as in the server.

What Python's collector does by itself is within the operation that happens to set it off; what the
server has it do after each step is an operation like the others.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, thread_time_ns

import numpy as np

from server.garbage import GarbageCollector, tame_garbage_collector
from workloads.tree.churn import Churn, Times


@dataclass(slots=True)
class Collections:
    """Milliseconds of each collection of garbage, by generation."""

    taken: tuple[list[float], list[float], list[float]] = field(
        default_factory=lambda: ([], [], [])
    )
    _start: int = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._start = thread_time_ns()
        else:
            self.taken[info["generation"]].append((thread_time_ns() - self._start) / 1e6)


@contextmanager
def collector_as_in_the_server() -> Iterator[tuple[GarbageCollector, Collections]]:
    """Python's garbage collector as the server sets it; afterwards as it was."""
    thresholds, collections = gc.get_threshold(), Collections()
    collector = tame_garbage_collector()
    gc.callbacks.append(collections)
    try:
        yield collector, collections
    finally:
        gc.callbacks.remove(collections)
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@dataclass(frozen=True, slots=True)
class Spread:
    """How often an operation was timed, and microseconds."""

    count: int
    median_us: float
    p99_us: float
    longest_us: float


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured in a churn.

    ``longest``: the longest single operations, longest first: (kind, milliseconds, how many of its
    kind came before). ``collections``: of garbage, by generation: how many, and the longest in
    milliseconds. ``full_collection``: how many objects one had to look at in the end, and its
    milliseconds; the server does it when it is idle.
    """

    seconds: float
    requests: int
    leaves_before: int
    leaves_after: int
    evicted_blocks: int
    expired_blocks: int
    operations: dict[str, Spread]
    longest: list[tuple[str, float, int]]
    collections: list[tuple[int, float]]
    full_collection: tuple[int, float]

    @property
    def longest_ms(self) -> float:
        """The longest single operation."""
        return max(spread.longest_us for spread in self.operations.values()) / 1000


def run(churn: Churn, seconds: float, progress: Callable[[float], object]) -> Report:
    """Churn for so many seconds. ``progress`` is told the seconds gone by since it last was."""
    counters = churn.cache.counters
    before = (churn.requests, counters.evicted_blocks, counters.expired_blocks)
    leaves = churn.stored_leaves()
    with collector_as_in_the_server() as (collector, collections):
        told = start = monotonic()
        while (now := monotonic()) - start < seconds:
            if now - told > 0.5:
                progress(now - told)
                told = now
            churn.step()
            churn.times.timed("collect", collector.between_steps)
        in_use = [(len(taken), max(taken, default=0.0)) for taken in collections.taken]
        objects = len(gc.get_objects())
        gc.collect()  # as when the server is idle
    return Report(
        seconds=seconds,
        requests=churn.requests - before[0],
        leaves_before=leaves,
        leaves_after=churn.stored_leaves(),
        evicted_blocks=counters.evicted_blocks - before[1],
        expired_blocks=counters.expired_blocks - before[2],
        operations={kind: spread(taken) for kind, taken in sorted(churn.times.by_kind.items())},
        longest=longest(churn.times, 20),
        collections=in_use,
        full_collection=(objects, collections.taken[2][-1]),
    )


def spread(taken: array[int]) -> Spread:
    """Of nanoseconds."""
    microseconds = np.frombuffer(taken, np.int64) / 1000
    return Spread(
        len(taken),
        float(np.median(microseconds)),
        float(np.percentile(microseconds, 99)),
        float(microseconds.max()),
    )


def longest(times: Times, count: int) -> list[tuple[str, float, int]]:
    """The ``count`` longest operations of at least half a millisecond: (kind, milliseconds, place
    among its kind), longest first."""
    every = [
        (kind, nanoseconds / 1e6, place)
        for kind, taken in times.by_kind.items()
        for place, nanoseconds in enumerate(taken)
        if nanoseconds > 500_000
    ]
    return sorted(every, key=lambda one: -one[1])[:count]
