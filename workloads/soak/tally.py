"""What came of all requests so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from workloads.soak.asking import Heard
from workloads.soak.manners import Manner
from workloads.soak.questions import Question
from workloads.soak.said import Choices, difference, wrong_beginning

_EXAMPLES = 20


@dataclass(slots=True)
class Tally:
    """``requests``: sent, by kind. ``aborts``: hung up by the client before the end. ``busy``:
    refused because there was too much to do. ``errors``: what nobody should have got, by what it
    was. ``compared``: answers that could be compared, ``wrong`` of them; ``examples`` of these."""

    requests: Counter[str] = field(default_factory=Counter)
    aborts: int = 0
    busy: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)

    def count(self, kind: str, heard: Heard) -> None:
        """A request that has ended."""
        self.requests[kind] += 1
        self.aborts += heard.left
        if heard.error is not None:
            (self.busy if heard.busy else self.errors)[heard.error] += 1

    def compare(self, question: Question, manner: Manner, expected: Choices, heard: Heard) -> None:
        """An answer, or the beginning of one, with what was said when it was calm."""
        if heard.error is not None or not heard.said:
            return
        self.compared += 1
        found = (wrong_beginning if heard.left else difference)(expected, heard.said)
        if found is not None:
            self.wrong += 1
            if len(self.examples) < _EXAMPLES:
                asked = f"{question.body!r:.600} {manner}"
                self.examples.append(f"{question.dialect}: {found}; asked for {asked}")

    def data(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        counts = {name: dict(getattr(self, name)) for name in ("requests", "busy", "errors")}
        return {**counts, "aborts": self.aborts, "wrong": self.wrong, "examples": self.examples}

    def line(self) -> dict[str, int]:
        """For a line of progress."""
        return {
            "requests": self.requests.total(),
            "aborts": self.aborts,
            "busy": self.busy.total(),
            "errors": self.errors.total(),
            "wrong": self.wrong,
        }
