"""What was found out about one prompt that left a stored branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "clock",
    "date",
    "uuid",
    "id",
    "hex",
    "number",
    "tool_order",
    "tools",
    "json_form",
    "history",
    "other",
]
KINDS: tuple[Kind, ...] = (
    *("clock", "date", "uuid", "id", "hex", "number"),
    *("tool_order", "tools", "json_form", "history", "other"),
)

SectionKind = Literal["system", "tools", "message", "template", "prompt"]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a rendered prompt, by its characters from ``start`` to ``end``. ``message`` and
    ``role``: of the message that it is the text of (system: the system's). template: what the chat
    template writes by itself. prompt: a prompt without messages."""

    kind: SectionKind
    start: int
    end: int
    message: int | None = None
    role: str | None = None

    @property
    def name(self) -> str:
        """For people."""
        if self.kind == "tools":
            return "tools section"
        if self.kind in ("template", "prompt"):
            return "text of the chat template" if self.kind == "template" else "prompt"
        return (
            f"{self.role} message"
            if self.message is None
            else (f"{self.role} message {self.message}")
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """``position``: the token at which the prompt left the branch. ``first`` and ``last``: the
    characters of the section between which both differ (the last one excluded). ``lost_tokens``:
    those after the span that are as in the branch, and had to be computed again. ``here`` and
    ``stored``: how the span reads in the prompt and in the branch. ``shape``: equal for prompts
    that belong together."""

    kind: Kind
    section: Section
    first: int
    last: int
    position: int
    lost_tokens: int
    prompt_tokens: int
    here: str
    stored: str
    shape: bytes
