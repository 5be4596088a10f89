"""Runs put together by target and rate, so that they can be set side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from workloads.agents.measures import Turn, summarise
from workloads.agents.run import Run
from workloads.agents.slo import Slo, kept_share

Of = Callable[[Run], float | None]


@dataclass(frozen=True, slots=True)
class Result:
    """All rounds of one target, at one rate of arrivals where there are several."""

    target: str
    runs: tuple[Run, ...]

    @property
    def title(self) -> str:
        """The target's name for people, with a mark where a run was resumed."""
        name = f"cache {self.target}" if self.target in ("on", "off") else self.target
        return name + ("*" if self.resumed else "")

    @property
    def resumed(self) -> bool:
        """Whether a run was interrupted and resumed."""
        return any(run.resumed_after for run in self.runs)

    def value(self, of: Of) -> float | None:
        """The median over the rounds; None where a round has none."""
        values = [of(run) for run in self.runs]
        known = [value for value in values if value is not None]
        return middle(known) if len(known) == len(values) else None

    def turns(self) -> tuple[Turn, ...]:
        """Figures by turn, over the calls of all rounds."""
        return summarise([record for run in self.runs for record in run.replay.records]).turns

    def share(self, slo: Slo) -> float | None:
        """The share of all rounds' turns that keep the limits."""
        return kept_share(slo, [run.replay for run in self.runs])


def results(runs: Sequence[Run]) -> list[Result]:
    """Runs by target, in the order in which targets first ran."""
    names = dict.fromkeys(run.label for run in runs)
    return [Result(name, tuple(run for run in runs if run.label == name)) for name in names]


def results_by_rate(runs: Sequence[Run]) -> dict[float, list[Result]]:
    """The results of a sweep, from the lowest rate up; empty where there was none."""
    rates = sorted({run.leg.rate for run in runs if run.leg.rate is not None})
    return {rate: results([run for run in runs if run.leg.rate == rate]) for rate in rates}


def pair_ratio(of: Of, above: Result, below: Result) -> float | None:
    """One target's value over another's: the median of the ratios of their rounds, since what two
    runs of a round have in common is the machine's speed. None where a round has no ratio."""
    rounds = {run.leg.round: run for run in below.runs}
    ratios = []
    for run in above.runs:
        other = rounds.get(run.leg.round)
        if other is None:
            continue
        top, bottom = of(run), of(other)
        if top is None or not bottom:
            return None
        ratios.append(top / bottom)
    return middle(ratios) if ratios else None


def middle(values: Sequence[float]) -> float:
    """The median, which stays a whole number where the values are one and the same."""
    return values[0] if len(set(values)) == 1 else median(values)


def against(found: Sequence[Result]) -> list[tuple[Result, Result]]:
    """The pairs whose ratios are shown: each other target over the first; the cache on over off."""
    by_name = {result.target: result for result in found}
    if by_name.keys() == {"on", "off"}:
        return [(by_name["on"], by_name["off"])]
    return [(other, found[0]) for other in found[1:]]
