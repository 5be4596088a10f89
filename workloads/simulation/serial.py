"""The product's own prefix cache, one call at a time in order of arrival: what an eviction rule
does by itself, without a scheduler that could choose the order."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from radix_engine.cache import Lease, PrefixCache, token_array
from radix_engine.cache.eviction import EvictionRule
from workloads.simulation.agent_rule import LateReplies
from workloads.simulation.clock import SimClock
from workloads.simulation.serial_calls import SerialCall

# The cache never covers a prompt's last token; here every block of a prompt may be hit, so one
# number that no block has stands behind them.
_BEHIND = np.array([-1], np.int32).tobytes()


class SerialCache:
    """Serves calls from ``num_blocks`` blocks by an eviction rule. A block of the trace is a block
    of one token here. A call that runs keeps its path; one that finds no room keeps the first
    blocks of it. A call of no time gives its path back at once; the agent rule hears of the end of
    its reply when that came. ``ghosts``: evicted blocks that are remembered (None: as many as a
    server does for the agent rule, which finds by them what a call continues; else none)."""

    def __init__(
        self, num_blocks: int, eviction: str | EvictionRule, *, ghosts: int | None = None
    ) -> None:
        self._clock = SimClock()
        self._late = LateReplies() if eviction == "agent" else None
        if ghosts is None:
            ghosts = 0 if self._late is None else 3 * num_blocks
        self.cache = PrefixCache(
            num_blocks,
            1,
            self._clock.read,
            eviction=self._late or eviction,
            partial_blocks=False,
            ghost_blocks=ghosts,
        )
        self._running: list[tuple[float, int, Lease, SerialCall]] = []
        self._served = 0

    def hits(self, calls: Sequence[SerialCall]) -> list[int]:
        """For each call, how many of its prompt's blocks it found."""
        return [self.serve(call) for call in calls]

    def serve(self, call: SerialCall) -> int:
        """One call; how many of its prompt's blocks it found."""
        self._end_until(call.start_s)
        self._clock.advance_to(call.start_s)
        cache = self.cache
        path = call.path.astype(np.int32).tobytes()
        match = cache.match(path + _BEHIND)
        found = match.num_tokens
        cache.account(match, path + _BEHIND)
        lease = cache.lease(match)
        missing = min(len(call.path) - found, cache.available_blocks)
        blocks = cache.allocate(missing) or token_array()
        run = path[found * 4 : (found + len(blocks)) * 4]
        cache.publish(lease, run, blocks)
        self._served += 1
        if call.end_s > call.start_s:
            heapq.heappush(self._running, (call.end_s, self._served, lease, call))
        else:
            self._release(lease, call, call.start_s + call.reply_s)
        cache.expire()
        return min(found, call.prompt_blocks)

    def _end_until(self, now: float) -> None:
        while self._running and self._running[0][0] <= now:
            ended, _, lease, call = heapq.heappop(self._running)
            self._clock.advance_to(ended)
            self._release(lease, call, ended)
        if self._late is not None:
            self._late.hear(now)

    def _release(self, lease: Lease, call: SerialCall, replied: float) -> None:
        self.cache.release(lease)
        if self._late is not None:
            self._late.expect(lease, replied, tool_call=call.stop == "tool_use")
            self._late.hear(self._clock.read())
