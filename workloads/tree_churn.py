"""Churn: a big tree in the use a server makes of it, every operation timed by itself.

As many requests as a server runs at a time, one admitted and one ended in turn. A request draws
one of many shared heads, or goes on where an earlier request ended; it is matched, leased, given
blocks, announced and committed (or withdrawn, where it was aborted), then publishes what it
generated and ends. The pool is full, so that most allocations evict. Each request lasts a second of
the cache's clock; now and then comes a quiet time, after which what was idle for too long expires.

Times are the thread's own CPU time, so that what other processes do is not in them. Python's
garbage collector runs as in the server, within the operation that happens to set it off.
"""

from __future__ import annotations

import gc
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, thread_time_ns
from typing import ParamSpec, TypeVar

import numpy as np

from radix_engine.cache import Lease, PrefixCache
from server.garbage import GarbageCollector, tame_garbage_collector
from workloads.tree_build import BLOCK, BLOCK_BYTES, TOKEN_BYTES, Progress, store, tokens

P = ParamSpec("P")
R = TypeVar("R")

RUNNING = 64  # requests at a time
HEADS_PER_LEAF = 0.1
HEAD_BLOCKS = 2
MOST_BLOCKS = 3  # of a request's own prompt
LONG_BLOCKS = 128  # of one prompt in a hundred
REMEMBERED = 2_000  # ended requests that may be gone on with
BLOCKS_PER_LEAF = 5.5  # what this mix stores, heads and long prompts included
FILL_BLOCKS = 10  # the most blocks of a leaf before the churn, about the same with its head
IDLE_LIMIT = 2.6  # the time to live, in seconds for each leaf: what is evicted is about as old
_CONTINUED, _LONG, _ABORTED = 0.3, 0.01, 0.05


@dataclass(slots=True)
class Clock:
    """Seconds, as the cache sees them."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Times:
    """Nanoseconds of the thread's CPU time, by kind of operation."""

    by_kind: dict[str, array[int]] = field(default_factory=dict)

    def timed(self, kind: str, function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """Carry an operation out and note how long it took."""
        start = thread_time_ns()
        result = function(*args, **named)
        taken = thread_time_ns() - start
        if kind not in self.by_kind:
            self.by_kind[kind] = array("q")
        self.by_kind[kind].append(taken)
        return result


@dataclass(slots=True)
class Request:
    """A request in a pool's hands: ``tail`` is its one private block, to be filled by its reply."""

    prompt: bytes
    lease: Lease
    tail: array[int]


class Churn:
    """The requests over one cache. ``step`` ends one and admits one."""

    def __init__(self, leaves: int, seed: int = 0) -> None:
        self.leaves = leaves
        self.clock = Clock()
        self.times = Times()
        self.requests = 0
        self._rng = np.random.default_rng(seed)
        count = max(1, int(leaves * HEADS_PER_LEAF))
        self._heads = [tokens(self._rng, HEAD_BLOCKS * BLOCK) for _ in range(count)]
        blocks = int(leaves * BLOCKS_PER_LEAF) + 2 * LONG_BLOCKS
        # Quiet times: about half of a leaf's age when it goes.
        self._quiet_every = max(1, leaves // 5)
        self.cache = PrefixCache(blocks, BLOCK, self.clock, ttl=IDLE_LIMIT * leaves)
        self._running: deque[Request] = deque()
        self._ended: deque[bytes] = deque(maxlen=REMEMBERED)

    def step(self) -> None:
        """Admit a request; end the oldest, where enough are running."""
        cache, timed = self.cache, self.times.timed
        self.requests += 1
        self.clock.now += 1.0
        if self.requests % self._quiet_every == 0:
            self.clock.now += self._quiet_every
        timed("expire", cache.expire)
        if len(self._running) >= RUNNING:
            self._end(self._running.popleft())
        self._admit(self._prompt())
        timed("sum", cache.pool.sum_problem)

    def store_leaf(self) -> None:
        """A leaf below a head, with its part of the blocks; not timed."""
        self.clock.now += 1.0
        head = self._heads[int(self._rng.integers(len(self._heads)))]
        blocks = 1 + int(self._rng.integers(FILL_BLOCKS))
        store(self.cache, head + tokens(self._rng, blocks * BLOCK))

    def stored_leaves(self) -> int:
        """Leaves that hold blocks. Cost: O(nodes)."""
        leaves, todo = 0, [self.cache.root]
        while todo:
            node = todo.pop()
            leaves += bool(node.blocks) and not node.stored_children
            todo.extend(node.children.values())
        return leaves

    def _prompt(self) -> bytes:
        rng = self._rng
        kind = rng.random()
        own = LONG_BLOCKS if kind < _LONG else 1 + int(rng.integers(MOST_BLOCKS))
        if kind > 1 - _CONTINUED and self._ended:
            start = self._ended[int(rng.integers(len(self._ended)))]
        else:
            start = self._heads[int(rng.integers(len(self._heads)))]
        return start + tokens(rng, own * BLOCK + 1 + int(rng.integers(BLOCK - 1)))

    def _admit(self, prompt: bytes) -> None:
        cache, timed = self.cache, self.times.timed
        match = timed("match", cache.match, prompt)
        timed("account", cache.account, match, prompt)
        lease = timed("lease", cache.lease, match)
        whole = len(prompt) // BLOCK_BYTES * BLOCK_BYTES
        run = prompt[lease.num_tokens * TOKEN_BYTES : whole]
        blocks = timed("allocate", cache.allocate, len(run) // BLOCK_BYTES + 1)
        if blocks is None:
            raise RuntimeError("the pool of the measured cache is too small")
        tail = blocks[-1:]
        announced = timed("announce", cache.announce, lease, run, blocks[:-1])
        if announced and self._rng.random() < _ABORTED:
            timed("withdraw", cache.withdraw, lease)
            timed("release", cache.release, lease)
            timed("free", cache.free, tail)
            return
        timed("commit", cache.commit, lease)
        if not announced and run:
            timed("publish", cache.publish, lease, run, blocks[:-1])
        self._running.append(Request(prompt, lease, tail))

    def _end(self, request: Request) -> None:
        """It has generated what fills its last block."""
        cache, timed = self.cache, self.times.timed
        missing = BLOCK - len(request.prompt) % BLOCK_BYTES // TOKEN_BYTES
        known = request.prompt + tokens(self._rng, missing)
        run = known[request.lease.num_tokens * TOKEN_BYTES :]
        timed("publish", cache.publish, request.lease, run, request.tail)
        timed("release", cache.release, request.lease)
        self._ended.append(known)


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


def fill(churn: Churn, progress: Progress) -> None:
    """Fill the pool with as many leaves as churn will keep, then let the first requests run."""
    for _ in range(churn.leaves):
        churn.store_leaf()
        progress(1)
    for _ in range(10 * RUNNING):
        churn.step()
    churn.times = Times()


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
