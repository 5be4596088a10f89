"""Agents: one head of instructions and tools, a task each, tools that take their time."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.generators.draws import Draws
from workloads.generators.plan import Part, PlannedCall, PlannedSession


def agents(
    seed: int,
    sessions: int,
    *,
    head: int = 2000,
    least_turns: int = 4,
    most_turns: int = 12,
    tool_s: float = 2.0,
) -> Iterator[PlannedSession]:
    """Every agent works for some turns; a turn is a reply, then a tool's result of 40 to 600 tokens
    that comes after ``tool_s`` seconds in the mean."""
    for number in range(sessions):
        draws = Draws(seed, f"agent {number}")
        first = (Part("system", "head", head), Part("user", f"agent {number} task", 150))
        calls = [PlannedCall(first, _reply(number, 0, draws))]
        for turn in range(1, draws.between(least_turns, most_turns)):
            result = Part("user", f"agent {number} result {turn}", draws.between(40, 600))
            pause = draws.seconds(tool_s)
            calls.append(PlannedCall((result,), _reply(number, turn, draws), think_s=pause))
        yield PlannedSession(f"agent-{number:04}", tuple(calls))


def _reply(number: int, turn: int, draws: Draws) -> Part:
    return Part("assistant", f"agent {number} reply {turn}", draws.between(30, 120))
