"""A tool call as a JSON object: ``{"name": ..., "arguments": {...}}``, in pieces."""

from __future__ import annotations

import json
from collections.abc import Collection

from server.chat.json_scan import JsonScan, Status

ARGUMENTS = ("arguments", "parameters")
_KNOWN = frozenset({"name", "type", "id", *ARGUMENTS})
_AFTER = {"{": "key or }", ",": "key", ":": "value"}


class CallObject:
    """Reads one such object. Members may come in any order; there may be others (``type``, ``id``).

    Arguments that follow the name are given out as they come. Their last bracket is kept back until
    the object has ended: a call that never ends has no whole arguments. All others are given out at
    the end; written as a string that holds an object they are that object, and ``null`` is an empty
    one. ``strict``: fail at once for a member that no call has, and at the end without arguments;
    else these are empty then. ``names``: fail for another name; empty: any will do.
    """

    def __init__(self, *, strict: bool = False, names: Collection[str] = ()) -> None:
        self.status = Status.OPEN
        self.name = ""  # until it has come
        self.is_live = False  # the arguments are given out as they come
        self.unsent = ""  # of a live call: what was read since the last that was given out
        self._strict = strict
        self._names = names
        self._expects = "{"
        self._scan: JsonScan | None = None
        self._key: str | None = None  # of the value that is being read
        self._text = ""  # of that key or value, where it is not given out
        self._arguments: str | None = None  # not yet given out
        self._in_arguments = False

    def feed(self, text: str, start: int) -> int:
        """Go on in ``text`` from ``start``; returns where it stopped: at the object's end, at a
        failure, or at the text's end."""
        at = start
        while at < len(text) and self.status is Status.OPEN:
            before, given = at, self.is_live and self._in_arguments
            at = self._member(text, at) if self._scan is None else self._value(text, at)
            if self.is_live and not given:
                self.unsent += text[before:at]
        return at

    def take(self) -> str:
        """The arguments that may be given out now."""
        if self._arguments is None or not (self.is_live or self.status is Status.DONE):
            return ""
        whole = self._in_arguments or self.status is Status.DONE
        end = len(self._arguments) if whole else max(0, len(self._arguments) - 1)
        given, self._arguments = self._arguments[:end], self._arguments[end:]
        return given

    def _member(self, text: str, at: int) -> int:
        """A character between keys and values."""
        char, expects = text[at], self._expects
        if char in " \t\r\n":
            return at + 1
        if expects == "value":
            return self._begin_value(char, at)
        if char == '"' and expects in ("key", "key or }"):
            self._scan, self._key, self._text = JsonScan(), None, ""
            return at
        if char == "}" and expects in (", or }", "key or }"):
            self._finish()
            return at + 1
        if char == expects or (char == "," and expects == ", or }"):
            self._expects = _AFTER[char]
            return at + 1
        self.status = Status.FAILED
        return at

    def _begin_value(self, char: str, at: int) -> int:
        if self._key in ARGUMENTS:
            if self._arguments is not None:
                self.status = Status.FAILED
                return at
            self._in_arguments = char == "{"
            self.is_live = self._in_arguments and bool(self.name)
            self._arguments = ""
        self._scan, self._text = JsonScan(), ""
        return at

    def _value(self, text: str, at: int) -> int:
        """On in the key or value that is being read."""
        assert self._scan is not None
        at = self._scan.feed(text, at)
        piece = self._scan.take()
        if self._in_arguments:
            self._arguments = (self._arguments or "") + piece
        else:
            self._text += piece
        if self._scan.status is Status.DONE:
            self._scan = None
            if not self._end_of_value():
                self.status = Status.FAILED
        elif self._scan.status is Status.FAILED:
            self.status = Status.FAILED
        return at

    def _end_of_value(self) -> bool:
        """Whether the key or value that has been read may stand there."""
        key, self._key = self._key, None
        if key is None:
            self._key, self._expects = _string(self._text), ":"
            return not self._strict or self._key in _KNOWN
        self._expects = ", or }"
        if key == "name":
            first, self.name = not self.name, _string(self._text) or ""
            return first and self.name in (self._names or (self.name or None,))
        if self._in_arguments:
            self._in_arguments = False
            self.unsent = "}" if self.is_live else ""
        elif key in ARGUMENTS:
            self._arguments = "{}" if self._text == "null" else _object_in(self._text)
            return self._arguments is not None
        return True

    def _finish(self) -> None:
        if self._arguments is None and not self._strict:
            self._arguments = "{}"
        has_all = bool(self.name) and self._arguments is not None
        self.status = Status.DONE if has_all else Status.FAILED


def _string(text: str) -> str | None:
    """The string that a JSON text is; None for another value, or no valid Unicode."""
    if not text.startswith('"'):
        return None
    value: str = json.loads(text)
    return value if value.isascii() or value == value.encode(errors="replace").decode() else None


def _object_in(text: str) -> str | None:
    """The JSON text of the object that a JSON string holds."""
    inner = _string(text)
    try:
        return inner.strip() if inner and isinstance(json.loads(inner), dict) else None
    except (ValueError, RecursionError):
        return None
