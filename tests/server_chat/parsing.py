"""Parsing whole texts and texts in pieces, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from server.chat.events import (
    AnswerEvent,
    ContentText,
    ReasoningText,
    ToolCallArguments,
    ToolCallBegin,
)
from server.chat.parser import AnswerParser

Make = Callable[[], AnswerParser]


@dataclass
class Message:
    """An answer put together: its calls as (name, arguments)."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


def parse(make: Make, pieces: Iterable[str]) -> list[AnswerEvent]:
    """All events of a text that comes in these pieces."""
    parser = make()
    events = [event for piece in pieces for event in parser.push(piece)]
    return events + parser.finish()


def put_together(events: Sequence[AnswerEvent]) -> Message:
    """Checks the order that clients rely on, too."""
    message = Message()
    for event in events:
        if isinstance(event, ReasoningText):
            assert event.text
            message.reasoning += event.text
        elif isinstance(event, ContentText):
            assert event.text
            message.content += event.text
        elif isinstance(event, ToolCallBegin):
            assert event.index == len(message.calls)
            assert event.call_id
            message.calls.append((event.name, ""))
        else:
            assert isinstance(event, ToolCallArguments)
            assert event.index == len(message.calls) - 1, "pieces of the newest call only"
            assert event.text
            name, arguments = message.calls[event.index]
            message.calls[event.index] = (name, arguments + event.text)
    return message


def cuts(text: str, size: int) -> list[str]:
    """A text in pieces of one size."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def message_of(make: Make, text: str) -> Message:
    """What a text is, however it is cut."""
    whole = put_together(parse(make, [text]))
    for size in (1, 2, 3, 5, 8, 13):
        assert put_together(parse(make, cuts(text, size))) == whole, f"in pieces of {size}"
    return whole
