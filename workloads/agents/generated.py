"""Synthetic agents: one shared head, a task each, and tool results over a growing history."""

from __future__ import annotations

from random import Random

from workloads.agents.prompt import SYSTEM_PROMPT
from workloads.agents.text import TASKS, task_text, tool_result
from workloads.traces.session import Call, Message, Session


def agent_sessions(agents: int, turns: int, seed: int) -> tuple[Session, ...]:
    """``agents`` sessions of ``turns`` calls each; equal seeds give equal sessions.

    An agent's first call holds the shared head and its task, every later one a tool result. Tasks
    differ between agents as long as there are enough; then they repeat under other ticket numbers.
    """
    rng = Random(f"agents {seed}")
    order: list[str] = []
    while len(order) < agents:
        order += rng.sample(TASKS, len(TASKS))
    return tuple(
        _agent(f"agent-{index:02}", order[index], turns, Random(f"agent {seed} {index}"))
        for index in range(agents)
    )


def _agent(name: str, task: str, turns: int, rng: Random) -> Session:
    first = Call((Message("system", SYSTEM_PROMPT), Message("user", task_text(rng, task))))
    later = (Call((Message("user", tool_result(rng)),)) for _ in range(turns - 1))
    return Session(name, (first, *later))
