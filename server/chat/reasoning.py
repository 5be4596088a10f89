"""Telling what a model thinks from what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from server.chat.events import AnswerEvent, ReasoningText
from server.chat.markers import find
from server.chat.parser import AnswerParser


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """What stands around a model's reasoning."""

    opening: str
    closing: str


class _Phase(Enum):
    START = "an opening tag may come"
    INSIDE = "in the reasoning"
    AFTER = "in the line breaks after it"
    OVER = "all else is the inner parser's"


class ReasoningParser:
    """Reasoning at the beginning of an answer; what follows it goes to ``inner``.

    ``inside``: the prompt ends with the opening tag, so that the answer begins after it.
    ``interrupting``: markers of calls that end the reasoning where the model forgot to close it.
    Line breaks next to a tag are its own: no reasoning, and no content. An answer that ends inside
    is all reasoning.
    """

    def __init__(
        self,
        inner: AnswerParser,
        tags: ReasoningTags,
        *,
        inside: bool = False,
        interrupting: Sequence[str] = (),
    ) -> None:
        self._inner = inner
        self._tags = tags
        self._ends = (tags.closing, *interrupting)
        self._inside = inside
        self._phase = _Phase.START
        self._has_thought = False
        self._text = ""

    @property
    def has_called(self) -> bool:
        """See `AnswerParser`."""
        return self._inner.has_called

    def push(self, text: str) -> list[AnswerEvent]:
        """See `AnswerParser`."""
        self._text += text
        events: list[AnswerEvent] = []
        if self._phase is _Phase.START:
            self._start()
        if self._phase is _Phase.INSIDE:
            events += self._think()
        if self._phase is _Phase.AFTER:
            self._text = self._text.lstrip("\n")
            if self._text:
                self._phase = _Phase.OVER
        if self._phase is _Phase.OVER:
            events += self._inner.push(self._text)
            self._text = ""
        return events

    def finish(self) -> list[AnswerEvent]:
        """See `AnswerParser`."""
        events: list[AnswerEvent] = []
        if self._phase is _Phase.START and not self._inside:
            events += self._inner.push(self._text)
        elif self._has_thought or self._text.strip():
            events += [ReasoningText(self._text)] if self._text else []
        return [*events, *self._inner.finish()]

    def _start(self) -> None:
        """Look for an opening tag; where the answer begins inside, it may be there once more."""
        begun, opening = self._text.lstrip(), self._tags.opening
        if begun.startswith(opening):
            self._text, self._phase = begun[len(opening) :], _Phase.INSIDE
        elif not opening.startswith(begun):
            self._phase = _Phase.INSIDE if self._inside else _Phase.OVER

    def _think(self) -> list[AnswerEvent]:
        if not self._has_thought:
            self._text = self._text.lstrip("\n")
        found = find(self._text, 0, self._ends)
        end = found.start
        while end and self._text[end - 1] == "\n":
            end -= 1
        thought, self._text = self._text[:end], self._text[end:]
        if found.marker is not None:
            is_closed = found.marker == self._tags.closing
            self._text = self._text[found.start - end + is_closed * len(found.marker) :]
            self._phase = _Phase.AFTER if is_closed else _Phase.OVER
        self._has_thought |= bool(thought)
        return [ReasoningText(thought)] if thought else []
