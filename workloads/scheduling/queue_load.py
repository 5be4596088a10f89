"""A long queue over a large cache, to measure the scheduler on.

::

    120 conversations of 16,320 tokens, in 8 groups by system prompt: 1,040,896 cached tokens

    system prompt of 8,192 tokens -+- conversation of 8,128 -+- own 64 tokens of a request
                                   +- conversation ...       +- own 64 tokens ...

Every request begins with one of the conversations and needs 4 blocks of its own. A step admits 64,
which end with it; 64 arrive; the pool is full, so that 256 blocks are evicted for those published.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

from radix_engine.cache import PrefixCache, token_array
from scheduler import Limits, Request, Scheduler, StepPlan

BLOCK = 16
STEP_REQUESTS = 64
SYSTEM_PROMPTS = 8
SYSTEM_TOKENS = 8_192
CONVERSATION_TOKENS = 8_128
OWN_TOKENS = 64
CONVERSATIONS = 120
PROMPT_TOKENS = SYSTEM_TOKENS + CONVERSATION_TOKENS + OWN_TOKENS
_VOCABULARY = 50_000
_SPARE_BLOCKS = 8 * STEP_REQUESTS * OWN_TOKENS // BLOCK  # what ended requests leave stays a while

Progress = Callable[[int], object]


class QueueLoad:
    """A scheduler with ``waiting`` requests, and steps that exchange 64 of them."""

    def __init__(self, waiting: int, progress: Progress, seed: int = 0) -> None:
        self.waiting = waiting
        self._rng = np.random.default_rng(seed)
        self._ids = 0
        systems = [self._run(SYSTEM_TOKENS) for _ in range(SYSTEM_PROMPTS)]
        self.starts = [
            systems[index % SYSTEM_PROMPTS] + self._run(CONVERSATION_TOKENS)
            for index in range(CONVERSATIONS)
        ]
        cached = SYSTEM_PROMPTS * SYSTEM_TOKENS + CONVERSATIONS * CONVERSATION_TOKENS
        own = OWN_TOKENS // BLOCK + 2  # and what is kept for the next block
        blocks = cached // BLOCK + _SPARE_BLOCKS + STEP_REQUESTS * own
        self.cache = PrefixCache(blocks, BLOCK)
        limits = Limits(max_step_tokens=4 * STEP_REQUESTS * OWN_TOKENS, max_running=STEP_REQUESTS)
        self.scheduler = Scheduler(self.cache, limits)
        for start in self.starts:
            self._store(start)
        for _ in range(waiting):
            self.scheduler.submit(self.request())
            progress(1)

    def request(self) -> Request:
        """A new request, drawn at random, not submitted yet."""
        start = self.starts[int(self._rng.integers(len(self.starts)))]
        self._ids += 1
        return Request(self._ids, _tokens(start + self._run(OWN_TOKENS)), 1)

    def finish(self, plan: StepPlan) -> None:
        """End a step: all its requests get their only token."""
        self.scheduler.commit(plan, [1] * len(plan.sampling))

    def _run(self, tokens: int) -> bytes:
        return self._rng.integers(0, _VOCABULARY, tokens, dtype=np.int32).tobytes()

    def _store(self, run: bytes) -> None:
        lease = self.cache.lease(self.cache.match(run + bytes(4)))
        rest = run[lease.num_tokens * 4 :]
        blocks = self.cache.allocate(len(rest) // 4 // BLOCK)
        if blocks is None:
            raise RuntimeError("the pool of the measured cache is too small")
        self.cache.publish(lease, rest, blocks)
        self.cache.release(lease)


def shared_head(waiting: int, progress: Progress, seed: int = 1) -> Scheduler:
    """A queue of which all share a head of 8,192 tokens that nobody has computed, and 64 own tokens
    each; a step has room for one of them, whole."""
    rng = np.random.default_rng(seed)
    head = rng.integers(0, _VOCABULARY, SYSTEM_TOKENS, dtype=np.int32).tobytes()
    cache = PrefixCache(3 * SYSTEM_TOKENS // BLOCK, BLOCK)
    scheduler = Scheduler(cache, Limits(max_step_tokens=2 * SYSTEM_TOKENS, max_running=1))
    for number in range(1, waiting + 1):
        own = rng.integers(0, _VOCABULARY, OWN_TOKENS, dtype=np.int32).tobytes()
        scheduler.submit(Request(number, _tokens(head + own), 1))
        progress(1)
    return scheduler


def _tokens(run: bytes) -> array[int]:
    tokens = token_array()
    tokens.frombytes(run)
    return tokens
