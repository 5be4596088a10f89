"""Small records, sessions and options for the tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from workloads.agents.client import Answer
from workloads.agents.options import AgentOptions
from workloads.agents.replay import Record
from workloads.traces.arrival import Arrival
from workloads.traces.session import Call, Message, Session

ANSWER = Answer(
    text="yes",
    finish_reason="stop",
    prompt_tokens=100,
    cached_tokens=0,
    completion_tokens=5,
    ttft_s=0.1,
    last_s=0.5,
    total_s=0.6,
)


def record(turn: int, session: str = "a", digest: str = "d", **answer: object) -> Record:
    changed: Answer = replace(ANSWER, **answer)  # type: ignore[arg-type]
    return Record(session, turn, 0.0, digest, changed)


def user(text: str) -> Message:
    return Message("user", text)


def session(name: str, *calls: Call) -> Session:
    return Session(name, calls)


def options(output: Path, **changes: object) -> AgentOptions:
    base = AgentOptions(
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
        caches=(True, False),
        server_options=(),
        url=None,
        flush=False,
        output=output,
    )
    return replace(base, **changes)  # type: ignore[arg-type]
