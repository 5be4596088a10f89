"""Churn: a big tree in the use a server makes of it, every operation timed by itself.

As many requests as a server runs at a time, one admitted and one ended in turn. A request draws
one of many shared heads, or goes on where an earlier request ended; it is matched, leased, given
blocks, announced and committed (or withdrawn, where it was aborted), then publishes what it
generated and ends. The pool is full, so that most allocations evict. Each request lasts a second of
the cache's clock; now and then comes a quiet time, after which what was idle for too long expires.

Times are the thread's own CPU time, so that what other processes do is not in them.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import thread_time_ns
from typing import ParamSpec, TypeVar

import numpy as np

from radix_engine.cache import Lease, PrefixCache
from workloads.tree.build import BLOCK, BLOCK_BYTES, TOKEN_BYTES, Progress, store, tokens

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

    def __init__(self, leaves: int, seed: int = 0, eviction: str = "lru") -> None:
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
        limit = IDLE_LIMIT * leaves
        self.cache = PrefixCache(blocks, BLOCK, self.clock, ttl=limit, eviction=eviction)
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
        self.clock.now += IDLE_LIMIT  # so that the oldest is as old in the end as in churn
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


def fill(churn: Churn, progress: Progress) -> None:
    """Fill the pool with as many leaves as churn will keep, then let the first requests run."""
    for _ in range(churn.leaves):
        churn.store_leaf()
        progress(1)
    for _ in range(10 * RUNNING):
        churn.step()
    churn.times = Times()
