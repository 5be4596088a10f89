"""When sessions start and how long their callers think: seeded, and fixed before a replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from workloads.traces.lines import TraceError
from workloads.traces.session import Session

Kind = Literal["together", "stagger", "poisson", "recorded"]
_NUMBERED: dict[str, Kind] = {"stagger": "stagger", "poisson": "poisson", "recorded": "recorded"}


@dataclass(frozen=True, slots=True)
class Arrival:
    """How sessions arrive: all together, one every ``value`` seconds, ``value`` a second, or as
    recorded, all times multiplied by ``value``.

    A closed loop is all together with so many in flight at a time, which the replay sees to.
    """

    kind: Kind = "together"
    value: float = 0.0

    def __str__(self) -> str:
        if self.kind == "together" or (self.kind == "recorded" and self.value == 1.0):
            return self.kind
        return f"{self.kind}:{self.value:g}"


def parse_arrival(text: str) -> Arrival:
    """``together``, ``stagger:SECONDS``, ``poisson:RATE`` (sessions a second), ``recorded`` or
    ``recorded:FACTOR`` (0.5: in half the recorded time).

    Raises ValueError with these forms for anything else.
    """
    kind, colon, number = text.partition(":")
    if text == "together":
        return Arrival()
    if text == "recorded":
        return Arrival("recorded", 1.0)
    if colon and kind in _NUMBERED:
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if value > 0 and math.isfinite(value):
            return Arrival(_NUMBERED[kind], value)
    raise ValueError(
        f"{text!r} is not an arrival: use together, stagger:SECONDS, poisson:RATE (sessions a "
        "second), recorded or recorded:FACTOR (0.5: twice as fast), with a number above 0"
    )


def with_times(
    sessions: Sequence[Session], arrival: Arrival, think_time_s: float, seed: int
) -> tuple[Session, ...]:
    """The sessions with start times and thinking times set.

    Thinking times are exponential with mean ``think_time_s`` and drawn per call, except before a
    session's first call. Poisson arrivals have exponential gaps with mean 1 / rate. Recorded ones
    keep the recorded pauses in place of thinking times; raises TraceError for a session without
    recorded times.
    """
    if arrival.kind == "recorded":
        return tuple(_as_recorded(session, arrival.value) for session in sessions)
    arrivals, thinking = Random(f"arrival {seed}"), Random(f"think {seed}")
    timed: list[Session] = []
    moment = 0.0
    for index, session in enumerate(sessions):
        if arrival.kind == "poisson":
            moment += arrivals.expovariate(arrival.value)
        elif arrival.kind == "stagger":
            moment = index * arrival.value
        calls = (
            replace(call, think_s=_thinking(thinking, think_time_s) if at else 0.0)
            for at, call in enumerate(session.calls)
        )
        timed.append(replace(session, calls=tuple(calls), arrival_s=moment))
    return tuple(timed)


def _as_recorded(session: Session, factor: float) -> Session:
    if not session.timed:
        raise TraceError(
            f"arrival recorded: session {session.id} has calls without a recorded time; use "
            "together, stagger:SECONDS or poisson:RATE"
        )
    calls = (replace(call, think_s=call.think_s * factor) for call in session.calls)
    return replace(session, calls=tuple(calls), arrival_s=session.arrival_s * factor)


def _thinking(rng: Random, mean_s: float) -> float:
    return rng.expovariate(1 / mean_s) if mean_s > 0 else 0.0
