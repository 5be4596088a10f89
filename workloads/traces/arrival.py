"""When sessions start and how long their callers think: seeded, and fixed before a replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from workloads.traces.session import Session


@dataclass(frozen=True, slots=True)
class Arrival:
    """How sessions arrive: all together, one every ``value`` seconds, or ``value`` a second."""

    kind: Literal["together", "stagger", "poisson"] = "together"
    value: float = 0.0

    def __str__(self) -> str:
        return self.kind if self.kind == "together" else f"{self.kind}:{self.value:g}"


def parse_arrival(text: str) -> Arrival:
    """``together``, ``stagger:SECONDS`` or ``poisson:RATE`` (sessions a second).

    Raises ValueError with the three forms for anything else.
    """
    kind, colon, number = text.partition(":")
    if text == "together":
        return Arrival()
    if colon and kind in ("stagger", "poisson"):
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if value > 0 and math.isfinite(value):
            return Arrival("stagger" if kind == "stagger" else "poisson", value)
    raise ValueError(
        f"{text!r} is not an arrival: use together, stagger:SECONDS or poisson:RATE "
        "(sessions a second), with a number above 0"
    )


def with_times(
    sessions: Sequence[Session], arrival: Arrival, think_time_s: float, seed: int
) -> tuple[Session, ...]:
    """The sessions with start times and thinking times set.

    Thinking times are exponential with mean ``think_time_s`` and drawn per call, except before a
    session's first call. Poisson arrivals have exponential gaps with mean 1 / rate.
    """
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


def _thinking(rng: Random, mean_s: float) -> float:
    return rng.expovariate(1 / mean_s) if mean_s > 0 else 0.0
