"""The agent rule in a simulation: it is told when replies end, and whether they call a tool."""

from __future__ import annotations

import heapq

from radix_engine.cache import Lease
from radix_engine.cache.eviction import AgentLeaves


class LateReplies(AgentLeaves):
    """The agent rule where a path may be given back at once, so that every call finds room, while
    its reply still runs. The rule hears of its end, and of why it ended, when that has come and no
    sooner: else it would seem better than it can be."""

    def __init__(self) -> None:
        super().__init__()
        self._expected: list[tuple[float, int, bool, Lease]] = []
        self._count = 0

    def ended(self, lease: Lease, now: float) -> None:
        """The path is free; the reply has not ended."""
        self.given_back(lease, now)

    def expect(self, lease: Lease, ends_s: float, *, tool_call: bool) -> None:
        """The reply of a lease that was given back ends at this time."""
        self._count += 1
        heapq.heappush(self._expected, (ends_s, self._count, tool_call, lease))

    def hear(self, now: float) -> None:
        """Of all replies that have ended by now."""
        while self._expected and self._expected[0][0] <= now:
            ended, _, tool_call, lease = heapq.heappop(self._expected)
            if tool_call:
                self.called_tool(lease, now)
            self.replied(lease.note, ended, now)
