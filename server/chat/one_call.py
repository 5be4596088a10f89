"""Answers of which at most one tool call is wanted."""

from __future__ import annotations

from server.chat.events import AnswerEvent, ToolCallArguments, ToolCallBegin
from server.chat.parser import AnswerParser


class OneCall:
    """What another parser gives, without the calls after the first."""

    def __init__(self, parser: AnswerParser) -> None:
        self._parser = parser

    @property
    def has_called(self) -> bool:
        """See `AnswerParser`."""
        return self._parser.has_called

    def push(self, text: str) -> list[AnswerEvent]:
        """See `AnswerParser`."""
        return list(filter(_is_wanted, self._parser.push(text)))

    def finish(self) -> list[AnswerEvent]:
        """See `AnswerParser`."""
        return list(filter(_is_wanted, self._parser.finish()))


def _is_wanted(event: AnswerEvent) -> bool:
    return not isinstance(event, ToolCallBegin | ToolCallArguments) or event.index == 0
