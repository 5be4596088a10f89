"""Which request of a load comes next, and when."""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

from workloads.simulation.load import Load, LoadRequest


class Arrival(NamedTuple):
    """A request of a load at its moment, in seconds from the start."""

    moment: float
    serial: int  # of two at the same moment, the one that was known first comes first
    session: int
    turn: int


class Arrivals:
    """The requests of a load in the order in which they come.

    Those after a session's first, and sessions that wait for one in flight to end, have no moment
    until `ended` or `given_up` tells what they wait for.
    """

    def __init__(self, load: Load) -> None:
        self._sessions = load.sessions
        self._heap: list[Arrival] = []
        self._serials = 0
        by_start = sorted(range(len(load.sessions)), key=lambda s: load.sessions[s][0].delay_s)
        in_flight = len(by_start) if load.concurrency is None else load.concurrency
        self._held_back = deque(by_start[in_flight:])
        for session in by_start[:in_flight]:
            self._push(load.sessions[session][0].delay_s, session, 0)

    def next_moment(self) -> float | None:
        """When the next request comes that has a moment; None where there is none."""
        return self._heap[0].moment if self._heap else None

    def due(self, now: float) -> list[Arrival]:
        """Take out all that have come by now, in their order."""
        due = []
        while self._heap and self._heap[0].moment <= now:
            due.append(heapq.heappop(self._heap))
        return due

    def request(self, arrival: Arrival) -> LoadRequest:
        """The request that has come."""
        return self._sessions[arrival.session][arrival.turn]

    def ended(self, arrival: Arrival, now: float) -> None:
        """A request has ended: its session's next one, or the next session, comes in its time."""
        session, turn = arrival.session, arrival.turn + 1
        if turn < len(self._sessions[session]):
            self._push(now + self._sessions[session][turn].delay_s, session, turn)
        else:
            self._start_next(now)

    def given_up(self, arrival: Arrival, now: float) -> int:
        """A request cannot be served, and its session ends with it: the next session comes in its
        time. How many requests do not come, this one included."""
        self._start_next(now)
        return len(self._sessions[arrival.session]) - arrival.turn

    def _start_next(self, now: float) -> None:
        if self._held_back:
            following = self._held_back.popleft()
            self._push(max(now, self._sessions[following][0].delay_s), following, 0)

    def _push(self, moment: float, session: int, turn: int) -> None:
        heapq.heappush(self._heap, Arrival(moment, self._serials, session, turn))
        self._serials += 1
