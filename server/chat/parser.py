"""From an answer's text to its parts, as the text comes."""

from __future__ import annotations

from typing import Protocol

from server.chat.events import AnswerEvent, ContentText


class AnswerParser(Protocol):
    """Takes one answer's text in pieces. What it gives does not depend on where they are cut, but
    for the cuts in its own texts. Any text is taken; nothing is raised."""

    @property
    def has_called(self) -> bool:
        """Whether at least one whole tool call has come."""

    def push(self, text: str) -> list[AnswerEvent]:
        """What is known of the answer with ``text`` added. Cost: the length of ``text``."""

    def finish(self) -> list[AnswerEvent]:
        """What was held back; the answer has ended."""


class PlainParser:
    """For an answer that is content and nothing else."""

    has_called = False

    def push(self, text: str) -> list[AnswerEvent]:
        """The text."""
        return [ContentText(text)] if text else []

    def finish(self) -> list[AnswerEvent]:
        """Nothing."""
        return []
