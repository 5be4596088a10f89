"""What an experiment is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workloads.experiments.panel import Panel
from workloads.results import Figure


@dataclass(frozen=True, slots=True)
class Settings:
    """``trace``: a recorded trace to look at besides the made-up ones, and ``model``: what the
    engine serves (None: the default model), for the experiments that take them."""

    seed: int = 0
    trace: Path | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures and all else that was measured, and the same for people: a table, and the panels
    of a picture under one title."""

    figures: Mapping[str, Figure]
    data: Mapping[str, object]
    table: str
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Experiment:
    """``question``: what it answers, in a line. ``takes``: which settings besides the seed."""

    question: str
    run: Callable[[Settings], Outcome]
    takes: frozenset[str] = frozenset()
