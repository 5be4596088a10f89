"""What the parsers of all forms of tool calls share: text up to a call, and the events so far."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from server.chat.call_object import CallObject
from server.chat.events import AnswerEvent, ContentText, ToolCallArguments, ToolCallBegin
from server.chat.json_scan import Status
from server.chat.markers import find

Mode = Callable[[], bool]

CLOSING_TAG = "</tool_call>"


def new_call_id() -> str:
    """As OpenAI's look."""
    return f"call_{secrets.token_hex(12)}"


class CallsParser(ABC):
    """Content with tool calls in it, as a state machine over the text that has not been dealt with.

    ``openings``: markers that begin calls. ``hidden``: markers that are special tokens of the
    model; they are never content. Line breaks right before a call are its own, no content. What
    begins like a call and is none, is content as it stands, and what follows is looked at afresh.
    Of a call whose arguments have begun and turn out to be wrong, the rest is content.

    A mode does what it can with the text; it returns False if it needs more, and sets the next.
    """

    openings: tuple[str, ...] = ()

    def __init__(self, new_id: Callable[[], str] = new_call_id, hidden: Sequence[str] = ()) -> None:
        self.has_called = False
        self._text = ""
        self._at = 0  # what comes before has been dealt with
        self._ended = False
        self._mode: Mode = self._content
        self._before = self._after = (
            0  # of an opening: where it begins, line breaks included; its end
        )
        self._is_open = False  # an opening has come, and no call yet: it may be given back
        self._new_id = new_id
        self._hidden = tuple(hidden)
        self._events: list[AnswerEvent] = []
        self._calls = 0

    def push(self, text: str) -> list[AnswerEvent]:
        """See `AnswerParser`."""
        self._text += text
        return self._run()

    def finish(self) -> list[AnswerEvent]:
        """See `AnswerParser`."""
        self._ended = True
        events = self._run()
        while self._is_open:
            if self._before < self._after and not self._text[self._after :].strip():
                break  # a mere marker: nothing was said
            self._give_back()
            events += self._run()
        return events

    def _run(self) -> list[AnswerEvent]:
        while self._mode():
            pass
        kept = self._before if self._is_open else self._at
        self._text = self._text[kept:]
        self._at, self._before, self._after = self._at - kept, 0, self._after - kept
        events, self._events = self._events, []
        return events

    # Modes.

    def _content(self) -> bool:
        """Up to the next opening."""
        found = find(self._text, self._at, (*self.openings, *self._hidden))
        is_plain = found.marker is not None and found.marker not in self.openings
        before = found.start
        if not is_plain and not (self._ended and found.marker is None):
            while before > self._at and self._text[before - 1] == "\n":
                before -= 1
        end = len(self._text) if self._ended and found.marker is None else before
        rest = self._text[self._at : end]
        if not (self._ended and self._calls and rest.isspace()):
            self._say(rest)
        self._at = end
        if found.marker is None:
            return False
        self._at = found.start + len(found.marker)
        if not is_plain:
            self._open(before, self._at)
            self._mode = self._opened(found.marker)
        return True

    @abstractmethod
    def _opened(self, marker: str) -> Mode:
        """What comes after an opening."""

    def _close(self) -> bool:
        """After a call: its closing tag, which may have been forgotten."""
        start = self._at
        closed = self._follows(CLOSING_TAG) if self._skip_spaces() else None
        if closed is None and not self._ended:
            self._at = start
            return False
        if not closed:
            self._at = start
        self._mode = self._content
        return True

    # Steps of modes.

    def _open(self, before: int, after: int) -> None:
        """An opening that may be given back from ``before``, and ends at ``after``."""
        self._before, self._after, self._is_open = before, after, True

    def _give_back(self) -> bool:
        """It is no call: the opening is content, and what follows it is looked at afresh."""
        opening = self._text[self._before : self._after]
        for marker in self._hidden:
            opening = opening.replace(marker, "")
        self._say(opening)
        self._at, self._is_open, self._mode = self._after, False, self._content
        return True

    def _skip_spaces(self) -> bool:
        """Go on to the next character that is no space; False if it has not come."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at < len(self._text)

    def _follows(self, expected: str) -> bool | None:
        """Whether ``expected`` comes next, which is then passed; None if that is not known yet."""
        rest = self._text[self._at : self._at + len(expected)]
        if rest == expected:
            self._at += len(expected)
            return True
        return None if expected.startswith(rest) and not self._ended else False

    def _read_object(self, call: CallObject, then: Mode) -> bool:
        """Go on in a call that is an object; once it has ended, ``then`` is next."""
        begun = call.is_live
        self._at = call.feed(self._text, self._at)
        if call.is_live and not begun:
            self._begin(call.name)
        if call.status is Status.DONE and not call.is_live:
            self._begin(call.name)
        self._add(call.take())
        if call.status is Status.DONE:
            self.has_called = True
            self._mode = then
        elif call.status is Status.FAILED:
            if not call.is_live:
                return self._give_back()
            self._say(call.unsent)
            self._mode = self._content
        return call.status is not Status.OPEN

    # Events.

    def _say(self, text: str) -> None:
        if text:
            self._events.append(ContentText(text))

    def _begin(self, name: str) -> None:
        self._events.append(ToolCallBegin(self._calls, self._new_id(), name))
        self._calls += 1
        self._is_open = False

    def _add(self, arguments: str) -> None:
        if arguments:
            self._events.append(ToolCallArguments(self._calls - 1, arguments))
