"""Following a JSON value in text that comes in pieces."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

_SPACES = re.compile(r"[ \t\r\n]*")
# A number, or a string without escapes, whose end is there, and what may follow it.
_WHOLE = re.compile(
    r'(?:"[^"\\\x00-\x1f]*"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?=[ ,\]}\n]))'
)
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_NUMBER_PART = re.compile(r"[-+.0-9eE]+")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"t": "true", "f": "false", "n": "null"}
_HEX = frozenset("0123456789abcdefABCDEF")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


class Status(Enum):
    """``OPEN``: more has to come; ``FAILED``: what came is no JSON."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"


class JsonScan:
    """One JSON value, piece by piece, whatever its kind and size.

    Models forget to escape line breaks and tabs in strings; as nothing else can be meant, these are
    escaped here and are no fault. A number by itself has no end that could be seen. Cost: the
    length of the text.

    A state is a method that takes a text and the place of its next character, and returns the place
    after what it has taken.
    """

    def __init__(self) -> None:
        self.status = Status.OPEN
        self._state: Callable[[str, int], int] = self._value
        self._open: list[str] = []  # what closes the arrays and objects around
        self._is_key = False
        self._partial = ""  # a number, or what is left of a word or of hexadecimal digits
        self._written: list[str] = []

    def feed(self, text: str, start: int) -> int:
        """Go on in ``text`` from ``start`` until the value ends, fails, or the text ends. Returns
        where; at a failure that is the first character that does not fit."""
        at, end = start, len(text)
        while at < end and self.status is Status.OPEN:
            at = self._state(text, at)
        return at

    def take(self) -> str:
        """The value's text that was read since the last call, with its strings put right."""
        written, self._written = "".join(self._written), []
        return written

    def _write(self, text: str, start: int, end: int) -> int:
        self._written.append(text[start:end])
        return end

    def _fail(self, at: int) -> int:
        self.status = Status.FAILED
        return at

    def _after_spaces(self, text: str, at: int) -> int:
        """Take spaces; where they end."""
        if text[at] not in " \t\r\n":
            return at
        found = _SPACES.match(text, at)
        assert found is not None
        return self._write(text, at, found.end())

    # Between values.

    def _value(self, text: str, at: int) -> int:
        start = self._after_spaces(text, at)
        if start == len(text):
            return start
        whole = _WHOLE.match(text, start)
        if whole is not None:
            self._end_of_value()
            return self._write(text, start, whole.end())
        char = text[start]
        if char == '"':
            self._state, self._is_key = self._string, False
        elif char in "{[":
            self._open.append("}" if char == "{" else "]")
            self._state = self._first_key if char == "{" else self._first_item
        elif char in _WORDS:
            self._state, self._partial = self._word, _WORDS[char][1:]
        elif char in "-0123456789":
            self._state, self._partial = self._number, char
        else:
            return self._fail(start)
        return self._write(text, start, start + 1)

    def _first_item(self, text: str, at: int) -> int:
        start = self._after_spaces(text, at)
        if start == len(text):
            return start
        return self._close(text, start) if text[start] == "]" else self._value(text, start)

    def _first_key(self, text: str, at: int) -> int:
        start = self._after_spaces(text, at)
        if start == len(text):
            return start
        return self._close(text, start) if text[start] == "}" else self._key(text, start)

    def _key(self, text: str, at: int) -> int:
        start = self._after_spaces(text, at)
        if start == len(text):
            return start
        if text[start] != '"':
            return self._fail(start)
        self._state, self._is_key = self._string, True
        return self._write(text, start, start + 1)

    def _colon(self, text: str, at: int) -> int:
        start = self._after_spaces(text, at)
        if start == len(text):
            return start
        if text[start] != ":":
            return self._fail(start)
        self._state = self._value
        return self._write(text, start, start + 1)

    def _next(self, text: str, at: int) -> int:
        start = self._after_spaces(text, at)
        if start == len(text):
            return start
        if text[start] != ",":
            return self._close(text, start)
        self._state = self._key if self._open[-1] == "}" else self._value
        return self._write(text, start, start + 1)

    def _close(self, text: str, at: int) -> int:
        if self._open[-1] != text[at]:
            return self._fail(at)
        self._open.pop()
        self._end_of_value()
        return self._write(text, at, at + 1)

    def _end_of_value(self) -> None:
        self._state = self._next
        if not self._open:
            self.status = Status.DONE

    # Inside of values.

    def _string(self, text: str, at: int) -> int:
        plain = _PLAIN.match(text, at)
        if plain is not None:
            return self._write(text, at, plain.end())
        char = text[at]
        if char == "\\":
            self._state = self._escape
        elif char != '"':
            self._written.append(_SHORT.get(char) or f"\\u{ord(char):04x}")
            return at + 1
        elif self._is_key:
            self._state = self._colon
        else:
            self._end_of_value()
        return self._write(text, at, at + 1)

    def _escape(self, text: str, at: int) -> int:
        if text[at] not in '"\\/bfnrtu':
            return self._fail(at)
        self._state = self._string
        if text[at] == "u":
            self._state, self._partial = self._digits, "0000"
        return self._write(text, at, at + 1)

    def _digits(self, text: str, at: int) -> int:
        if text[at] not in _HEX:
            return self._fail(at)
        self._partial = self._partial[1:]
        if not self._partial:
            self._state = self._string
        return self._write(text, at, at + 1)

    def _number(self, text: str, at: int) -> int:
        part = _NUMBER_PART.match(text, at)
        if part is not None:
            self._partial += part[0]
            return self._write(text, at, part.end())
        if _NUMBER.fullmatch(self._partial) is None:
            return self._fail(at)
        self._end_of_value()
        return at

    def _word(self, text: str, at: int) -> int:
        if not self._partial.startswith(text[at]):
            return self._fail(at)
        self._partial = self._partial[1:]
        if not self._partial:
            self._end_of_value()
        return self._write(text, at, at + 1)
