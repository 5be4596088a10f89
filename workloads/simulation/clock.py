"""The simulator's time: seconds that pass only when a step or a pause is accounted for."""

from __future__ import annotations


class SimClock:
    """A clock that stands at ``now`` seconds, from 0, until it is told to move."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        """The time, for whoever wants a function that tells it."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let a span of time pass. Raises ValueError for a negative one or NaN."""
        if not seconds >= 0:
            raise ValueError(f"a clock cannot move by {seconds} seconds")
        self.now += seconds

    def advance_to(self, moment: float) -> None:
        """Let time pass until ``moment``. Raises ValueError for one that is over, or NaN."""
        if not moment >= self.now:
            raise ValueError(f"a clock at {self.now} seconds cannot go back to {moment}")
        self.now = moment
