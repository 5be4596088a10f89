"""Which cached prefixes are evicted last: those that waiting requests are about to use."""

from __future__ import annotations

from scheduler.budget import Limits
from scheduler.counters import Counters
from scheduler.holding import Cache
from scheduler.queue import WaitingQueue, match_of

# Waiting requests whose cached prefixes are evicted last, and after how many steps others are.
_SPARED = 16
_SPARING_STEPS = 4


class Sparing:
    """Names them to the cache where steps may have to evict."""

    def __init__(
        self, cache: Cache, limits: Limits, waiting: WaitingQueue, counters: Counters
    ) -> None:
        self._cache = cache
        self._waiting = waiting
        self._counters = counters
        self._most_taken = limits.step_tokens // cache.block_size + limits.max_running
        self._is_sparing = False

    def prepare(self, now: float) -> None:
        """To be called before a step is planned. Who waits next is asked for now and then only."""
        cache = self._cache
        tight = len(self._waiting) > 0 and cache.pool.free_blocks < self._most_taken
        if tight and self._is_sparing and self._counters.steps % _SPARING_STEPS:
            return
        if tight:
            few = self._waiting.next_few(_SPARED, now)
            cache.spare([match_of(request, cache) for request in few])
        elif self._is_sparing:
            cache.spare(())
        self._is_sparing = tight
