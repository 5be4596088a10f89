"""Workloads that make a prefix cache look bad, each in a way that happens."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.generators.plan import Part, PlannedCall, PlannedSession
from workloads.generators.shared_heads import HEAD, OWN, REPLY, multi_prefix_round_robin

_CLOCK_TOKENS = 12


def clock_in_head(
    seed: int, sessions: int, *, at: float = 0.0, head: int = HEAD
) -> Iterator[PlannedSession]:
    """One system prompt for all, but for the time of day, another one in each. It stands behind the
    share ``at`` of the prompt: 0 at its head, 1 at its end, before the question."""
    before = round(head * at)
    for number in range(sessions):
        hours, minutes, seconds = number // 3600 % 24, number // 60 % 60, number % 60
        clock = f"Current time: 2026-01-01 {hours:02}:{minutes:02}:{seconds:02} UTC."
        pieces = (
            Part("system", f"rules to {before}", before),
            Part("system", f"clock {number}", _CLOCK_TOKENS, clock),
            Part("system", f"rules from {before}", head - before),
            Part("user", f"question {number}", OWN),
        )
        parts = tuple(piece for piece in pieces if piece.tokens)
        yield _one(number, parts)


def one_off_flood(
    seed: int, sessions: int, *, heads: int = 4, flood: int = 3000, every: int = 2
) -> Iterator[PlannedSession]:
    """Requests with a few heads in turn, and between them long prompts that never come again: one
    of ``every`` requests is such a one."""
    shared = 0
    for number in range(sessions):
        question = Part("user", f"question {number}", OWN)
        if number % every == every - 1:
            head = Part("system", f"one-off {number}", flood)
        else:
            head = Part("system", f"head {shared % heads}", HEAD)
            shared += 1
        yield _one(number, (head, question))


def loop(seed: int, sessions: int, *, heads: int = 32) -> Iterator[PlannedSession]:
    """Heads in turn, more of them than a small cache holds: least recently used then evicts each
    just before it is asked for again."""
    return multi_prefix_round_robin(seed, sessions, heads=heads)


def _one(number: int, parts: tuple[Part, ...]) -> PlannedSession:
    reply = Part("assistant", f"answer {number}", REPLY)
    return PlannedSession(f"request-{number:05}", (PlannedCall(parts, reply),))
