"""Prompts that branch: questions over one document, several answers, trees of thoughts."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.generators.draws import Draws
from workloads.generators.plan import Part, PlannedCall, PlannedSession


def long_document(
    seed: int, sessions: int, *, document: int = 12_000, questions: int = 20
) -> Iterator[PlannedSession]:
    """Documents with many questions to each, every one asked anew over the whole document."""
    for number in range(sessions):
        text = Part("user", f"document {number}", document)
        calls = tuple(
            PlannedCall(
                (text, Part("user", f"document {number} question {each}", 100)),
                Part("assistant", f"document {number} answer {each}", 150),
                reset=True,
            )
            for each in range(questions)
        )
        yield PlannedSession(f"document-{number:04}", calls)


def parallel_samples(seed: int, sessions: int, *, samples: int = 8) -> Iterator[PlannedSession]:
    """Each question is asked ``samples`` times, word for word, for as many answers; so many
    sessions in all, which is rounded up to whole questions."""
    for question in range(-(-sessions // samples)):
        parts = (Part("system", "head", 1000), Part("user", f"question {question}", 200))
        for sample in range(samples):
            reply = Part("assistant", f"question {question} answer {sample}", 200)
            yield PlannedSession(f"question-{question:04}-{sample}", (PlannedCall(parts, reply),))


def tree_of_thought(
    seed: int, sessions: int, *, depth: int = 3, breadth: int = 4, keep: int = 2
) -> Iterator[PlannedSession]:
    """Problems that are thought through level by level: each path that is kept is asked for
    ``breadth`` next thoughts, and ``keep`` of all are gone on with."""
    for number in range(sessions):
        draws = Draws(seed, f"thoughts {number}")
        problem = (Part("system", "head", 800), Part("user", f"problem {number}", 80))
        calls: list[PlannedCall] = []
        kept: list[tuple[Part, ...]] = [problem]
        for level in range(depth):
            paths = []
            for path in kept:
                for _ in range(breadth):
                    thought = Part("assistant", f"problem {number} thought {len(calls)}", 60)
                    calls.append(PlannedCall(path, thought, reset=True))
                    paths.append((*path, thought, Part("user", f"go on {level}", 8)))
            kept = draws.shuffled(paths)[:keep]
        yield PlannedSession(f"problem-{number:04}", tuple(calls))
