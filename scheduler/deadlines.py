"""Which requests have run out of time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from scheduler.request import Request


class Deadlines:
    """Requests by deadline. Cost: O(log) of those that have one; nothing where none has."""

    # An entry outlives its request, whose id may be another's by then: it holds numbers only.

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._requests: dict[int, Request] = {}

    def add(self, request: Request) -> None:
        """Watch a request until it ends, if it has a deadline."""
        if request.deadline is not None:
            self._requests[request.request_id] = request
            heappush(self._heap, (request.deadline, request.request_id))

    def ended(self, request: Request) -> None:
        """A request is over. Again is a no-op."""
        self._requests.pop(request.request_id, None)

    def passed(self, now: float) -> Iterator[Request]:
        """Those whose deadline has come; each once."""
        while self._heap and self._heap[0][0] <= now:
            request = self._requests.get(heappop(self._heap)[1])
            if request is not None and request.deadline is not None and request.deadline <= now:
                del self._requests[request.request_id]
                yield request
