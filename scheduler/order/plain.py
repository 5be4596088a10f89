"""Orders that do not look at what requests share. Who is blocked is the caller's to check."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from scheduler.prompt_trie import TOKEN_BYTES, PromptTrie

if TYPE_CHECKING:
    from scheduler.request import Request

_SLACK = 64  # outdated entries that a heap may hold besides as many as it has good ones


class FirstCome:
    """By arrival. Cost: O(log waiting)."""

    def __init__(self) -> None:
        self._heap: list[Any] = []
        self._present: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._present)

    def add(self, request: Request) -> None:
        """The request waits from now on, or again."""
        heappush(self._heap, self._entry(request))
        if len(self._heap) > 2 * len(self._present) + _SLACK:
            self._heap = list(self._present.values())
            heapify(self._heap)

    def discard(self, request: Request) -> None:
        """The request waits no longer. Again is a no-op."""
        self._present.pop(request.request_id, None)

    def best(self, now: float) -> Request | None:
        """Take out who comes first."""
        while self._heap:
            entry = heappop(self._heap)
            request: Request = entry[3]
            if self._present.get(request.request_id) is entry:
                del self._present[request.request_id]
                return request
        return None

    def _entry(self, request: Request) -> Any:
        entry = (self._rank(request), request.arrival, request.request_id, request)
        self._present[request.request_id] = entry
        return entry

    def _rank(self, request: Request) -> float:
        """What goes before arrival: the lowest first."""
        return 0


class Priority(FirstCome):
    """The highest ``request.priority`` first, then by arrival. Cost: O(log waiting)."""

    def _rank(self, request: Request) -> float:
        return -request.priority


class ResponseRatio(FirstCome):
    """The highest response ratio, (wait + cost) / cost, first, then by arrival: short work first,
    but nobody waits for ever.

    The wait counts from ``request.arrived_s``; the cost are the tokens that are not cached, at
    least 1. How long a token takes does not change the order. Ratios drift with time: they are
    found once for a ``now`` and hold for all calls with the same one, whatever is cached meanwhile.

    Cost: ``best`` O(waiting) for each new ``now``, else O(log waiting).
    """

    def __init__(self, trie: PromptTrie) -> None:
        super().__init__()
        self._trie = trie
        self._now = 0.0

    def best(self, now: float) -> Request | None:
        """Take out who has the highest ratio at ``now``."""
        if now != self._now:
            self._now = now
            waiting = [entry[3] for entry in self._present.values()]
            self._heap = [self._entry(request) for request in waiting]
            heapify(self._heap)
        return super().best(now)

    def _rank(self, request: Request) -> float:
        cached = self._trie.cached_tokens(request)
        cost = max(1, len(request.run) // TOKEN_BYTES - cached)
        return -max(0.0, self._now - request.arrived_s) / cost
