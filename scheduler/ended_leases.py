"""The leases of requests that ended a moment ago, for what is found out about their answers late.

Whether an answer calls a tool is known once its text has been parsed, which is when its request has
given all back. Its lease says still which branch of the cache it was.
"""

from __future__ import annotations

from typing import Any

# Text is parsed within milliseconds; a client that reads slowly may keep its stream's end waiting.
_KEPT_S = 30.0
_MOST = 1024


class EndedLeases:
    """By request id, at most ``most`` of them and, where time goes on, for ``kept_s`` seconds. They
    pin nothing. Costs: constant, amortised."""

    def __init__(self, most: int = _MOST, kept_s: float = _KEPT_S) -> None:
        self._most = most
        self._kept_s = kept_s
        self._now = 0.0
        self._leases: dict[int, tuple[float, Any]] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, request_id: int, lease: Any) -> None:
        """A request has ended, and its lease with it."""
        self._leases.pop(request_id, None)
        self._leases[request_id] = (self._now, lease)
        if len(self._leases) > self._most:
            del self._leases[next(iter(self._leases))]

    def take(self, request_id: int) -> Any | None:
        """The lease of a request that has ended; None where it is not known any more."""
        kept = self._leases.pop(request_id, None)
        return None if kept is None else kept[1]

    def forget(self, now: float) -> None:
        """Time has gone on: drop what has been kept for long enough."""
        self._now = now
        while self._leases:
            first = next(iter(self._leases))
            if now - self._leases[first][0] <= self._kept_s:
                return
            del self._leases[first]
