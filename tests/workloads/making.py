"""Small records, sessions and options for the tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from workloads.agents import html_report, plot
from workloads.agents.client import Answer
from workloads.agents.options import AgentOptions, Load
from workloads.agents.replay import Record
from workloads.agents.slo import Slo
from workloads.agents.targets import own_targets
from workloads.traces.arrival import Arrival
from workloads.traces.session import Call, Message, Session


def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixture for tests of what pictures do not show: they take most of a benchmark's time."""
    monkeypatch.setattr(plot, "draw", lambda *given: None)
    monkeypatch.setattr(plot, "draw_sweep", lambda *given: None)
    monkeypatch.setattr(html_report, "turn_pictures", lambda *given: "")
    monkeypatch.setattr(html_report, "sweep_pictures", lambda *given: "")


ANSWER = Answer(
    text="yes",
    finish_reason="stop",
    prompt_tokens=100,
    cached_tokens=0,
    completion_tokens=5,
    pieces=5,
    ttft_s=0.1,
    last_s=0.5,
    total_s=0.6,
)


LOAD = Load(
    agents=2,
    turns=3,
    trace=None,
    sessions=6,
    max_turns=4,
    max_tokens=8,
    think_time_s=0.0,
    arrival=Arrival(),
    concurrency=2,
    seed=0,
)


def load(**changes: object) -> Load:
    return replace(LOAD, **changes)  # type: ignore[arg-type]


def record(turn: int, session: str = "a", digest: str = "d", **answer: object) -> Record:
    changed: Answer = replace(ANSWER, **answer)  # type: ignore[arg-type]
    return Record(session, turn, 0.0, digest, changed)


def user(text: str) -> Message:
    return Message("user", text)


def session(name: str, *calls: Call) -> Session:
    return Session(name, calls)


def options(output: Path, **changes: object) -> AgentOptions:
    base = AgentOptions(
        load=LOAD,
        targets=own_targets((True, False)),
        server_options=(),
        flush=False,
        slo=Slo(),
        resume=False,
        output=output,
    )
    return replace(base, **changes)  # type: ignore[arg-type]
