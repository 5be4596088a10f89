"""How many later arrivals were admitted before the request that has waited for longest."""

from __future__ import annotations

from collections import deque

from scheduler.request import Request, State

_FINISHED = State.FINISHED  # Python 3.11 finds a member by a function that is written in Python


class Passing:
    """The waiting requests of one line by arrival, and who passed them.

    Of two waiting requests the earlier one was passed at least as often, since who passes the
    later one arrived after both. So the bound has to be watched for one request only, the oldest: a
    queue by arrival, from which those that ran or ended are dropped at its front, says all.
    A request counts once, when it runs first; one that was preempted is in front of all others and
    no longer in here. Cost: amortised constant.
    """

    def __init__(self) -> None:
        # Requests, and how many had passed the whole line before they came.
        self._by_arrival: deque[tuple[Request, int]] = deque()
        self._admitted = 0
        self._admitted_in_front = 0  # of those that were dropped from the front
        self._passed_all = 0
        self.most = 0

    def arrived(self, request: Request) -> None:
        """A request joins the line for the first time."""
        self._by_arrival.append((request, self._passed_all))

    def admitted(self) -> None:
        """A request of the line runs for the first time."""
        self._admitted += 1

    def passed_all(self) -> None:
        """One of another line was admitted though it was this one's turn."""
        self._passed_all += 1

    def oldest(self) -> tuple[Request, int] | None:
        """The request that has waited for longest, and by how many it was passed."""
        queue = self._by_arrival
        while queue:
            request, before = queue[0]
            if request.cached_tokens is not None:
                self._admitted_in_front += 1
            elif request.state is not _FINISHED:
                passed = self._admitted - self._admitted_in_front + self._passed_all - before
                if passed > self.most:
                    self.most = passed
                return request, passed
            queue.popleft()
        return None

    def passed_by(self, request: Request) -> int:
        """By how many a waiting request was passed. Cost: O(waiting); for tests and tables."""
        passed = 0
        for other, before in self._by_arrival:
            if other is request:
                passed += self._passed_all - before
            elif other.arrival > request.arrival and other.cached_tokens is not None:
                passed += 1
        return passed
