"""Requests that begin with one of a few long heads: system prompts, tasks with examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice

from workloads.generators.draws import Draws
from workloads.generators.plan import Part, PlannedCall, PlannedSession

HEAD, OWN, REPLY = 2048, 50, 32


def shared_system(seed: int, sessions: int, *, head: int = HEAD) -> Iterator[PlannedSession]:
    """One system prompt for all, and a question each."""
    return _requests(([0] * sessions), head)


def multi_prefix_zipf(
    seed: int, sessions: int, *, heads: int = 8, exponent: float = 1.0, head: int = HEAD
) -> Iterator[PlannedSession]:
    """Several system prompts, drawn by Zipf's law: a few are asked for most of the time."""
    drawn = Draws(seed, "zipf heads").zipf(heads, exponent)
    return _requests(islice(drawn, sessions), head)


def multi_prefix_round_robin(
    seed: int, sessions: int, *, heads: int = 8, head: int = HEAD
) -> Iterator[PlannedSession]:
    """Several system prompts in turn: the worst order for what was used last."""
    return _requests((number % heads for number in range(sessions)), head)


def few_shot(
    seed: int, sessions: int, *, tasks: int = 8, shots: int = 8, shot: int = 150
) -> Iterator[PlannedSession]:
    """Questions of several tasks, shuffled; a task's instruction and examples come first."""
    asked = Draws(seed, "few-shot order").shuffled([number % tasks for number in range(sessions)])
    for number, task in enumerate(asked):
        examples = [Part("user", f"task {task} shot {each}", shot) for each in range(shots)]
        parts = (
            Part("system", f"task {task}", 60),
            *examples,
            Part("user", f"question {number}", 60),
        )
        reply = Part("assistant", f"answer {number}", REPLY)
        yield PlannedSession(f"question-{number:05}", (PlannedCall(parts, reply),))


def _requests(heads: Iterable[int], size: int) -> Iterator[PlannedSession]:
    for number, head in zip(count(), heads, strict=False):
        parts = (Part("system", f"head {head}", size), Part("user", f"question {number}", OWN))
        reply = Part("assistant", f"answer {number}", REPLY)
        yield PlannedSession(f"request-{number:05}", (PlannedCall(parts, reply),))
