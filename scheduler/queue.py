"""The waiting requests, and in which order they are tried: longest cached prefix first, with a
bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from radix_engine.cache import MatchView, PrefixIndex
from scheduler.request import Request


class WaitingQueue:
    """Requests that hold nothing yet.

    ``in_order`` yields first those that go first whatever they match (preempted, or passed by
    ``max_passed_by`` later arrivals), by arrival, then the others by the length of their cached
    prefix, longest first, and by arrival where that is equal.
    """

    def __init__(self, max_passed_by: int) -> None:
        self._max_passed_by = max_passed_by
        self._requests: dict[int, Request] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._requests

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def add(self, request: Request) -> None:
        """Queue a request; one that comes back after a preemption keeps its place."""
        if not request.arrival:
            self._arrivals += 1
            request.arrival = self._arrivals
        self._requests[request.request_id] = request

    def discard(self, request: Request) -> None:
        """Take a request out, if it is there."""
        self._requests.pop(request.request_id, None)

    def admitted(self, request: Request) -> None:
        """Take out a request that runs from now on, and count it for those that came before it."""
        del self._requests[request.request_id]
        if request.preemptions:
            return  # was counted when it ran first
        for waiting in self._requests.values():
            if waiting.arrival < request.arrival:
                waiting.passed_by += 1

    def goes_first(self, request: Request) -> bool:
        """Whether nobody may be admitted before this request any more."""
        return request.preemptions > 0 or request.passed_by >= self._max_passed_by

    def in_order(self, cache: PrefixIndex[Any, Any]) -> list[Request]:
        """The order for this step. Matches again only what was matched before the tree changed."""

        def key(request: Request) -> tuple[int, int, int]:
            if self.goes_first(request):
                return (0, 0, request.arrival)
            return (1, -matched_tokens(request, cache), request.arrival)

        return sorted(self._requests.values(), key=key)


def match_of(request: Request, cache: PrefixIndex[Any, Any]) -> MatchView:
    """How far the cache covers the request now; the match is kept with the request."""
    match = request.match
    if match is None or match.version != cache.version:
        match = cache.match(request.tokens.tobytes(), request.namespace, request.mode)
        request.match = match
    return match


def matched_tokens(request: Request, cache: PrefixIndex[Any, Any]) -> int:
    """Tokens of the request that the cache covers now."""
    return match_of(request, cache).num_tokens
