"""In which manner a question is asked: none of it may change the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from workloads.soak.questions import Question


@dataclass(frozen=True, slots=True)
class Manner:
    """``fields``: further fields of the body. ``hangs_up_after_s``, ``hangs_up_after_events``: when
    the client leaves, if it does not wait for the end."""

    stream: bool
    fields: Mapping[str, Any]
    hangs_up_after_s: float | None = None
    hangs_up_after_events: int | None = None


CALM = Manner(stream=False, fields={"cache_mode": "none"})


def draw_manner(random: Random, question: Question) -> Manner:
    """A manner for one request."""
    stream = question.streams and random.random() < 0.5
    fields: dict[str, Any] = {}
    if random.random() < 0.3:
        fields["cache_mode"] = random.choice(("default", "read-only", "none"))
    if random.random() < 0.2:
        fields["cache_salt"] = random.choice(("one", "two"))
    if random.random() < 0.1:
        fields["cache_retention_s"] = random.choice((1, 5, 60))
    if random.random() < 0.2:
        fields["session_id"] = f"session-{random.randrange(20)}"
    if random.random() < 0.1 and question.dialect != "messages":
        fields["priority"] = random.randrange(-3, 4)
    if random.random() < 0.1:
        fields["nobody_knows_this"] = {"": [None]}
    after_s = after_events = None
    if random.random() < 0.2:
        if stream and random.random() < 0.6:
            after_events = random.choice((1, 1, 2, 5, 9))
        else:
            after_s = random.choice((0.0, 0.01, 0.05, 0.2, 0.5))
    return Manner(stream, fields, after_s, after_events)
