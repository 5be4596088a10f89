"""Tool calls as Mistral's models write them, after ``[TOOL_CALLS]``."""

from __future__ import annotations

import re

from server.chat.call_object import CallObject
from server.chat.calls import CallsParser, Mode
from server.chat.json_scan import JsonScan, Status

_ARGS = "[ARGS]"
_CALL_ID = "[CALL_ID]"
_NAME = re.compile(r"[^\s\[\]{}]*")


class MistralCalls(CallsParser):
    """An array of objects (up to version 7 of their tokenizer), or (from 11 on) for each call
    ``[TOOL_CALLS]name[ARGS]{...}``, with ``[CALL_ID]...`` before ``[ARGS]`` or without."""

    openings = ("[TOOL_CALLS]",)
    _called = ""  # the name that has been read

    def _opened(self, marker: str) -> Mode:
        return self._kind

    def _kind(self) -> bool:
        if not self._skip_spaces():
            return False
        self._mode = self._name
        if self._text[self._at] == "[":
            self._at += 1
            self._mode = self._item()
        return True

    def _item(self) -> Mode:
        """A call in an array."""
        call = CallObject()

        def read() -> bool:
            return self._read_object(call, self._next_item)

        return read

    def _next_item(self) -> bool:
        start = self._at
        if not self._skip_spaces() and not self._ended:
            self._at = start
            return False
        char = self._text[self._at : self._at + 1]
        if char == ",":
            self._at += 1
            self._open(start, start)
            self._mode = self._item()
            return True
        self._at = self._at + 1 if char == "]" else start
        self._mode = self._content
        return True

    def _name(self) -> bool:
        found = _NAME.match(self._text, self._at)
        end = self._at if found is None else found.end()
        if end == len(self._text):
            return False
        self._called, self._at = self._text[self._at : end], end
        self._mode = self._after_name
        return True if self._called else self._give_back()

    def _after_name(self) -> bool:
        has_id = self._follows(_CALL_ID)
        if has_id is None:
            return False
        self._mode = self._id if has_id else self._mark
        return True

    def _id(self) -> bool:
        end = self._text.find(_ARGS, self._at)
        if end < 0:
            return False
        self._at, self._mode = end, self._mark
        return True

    def _mark(self) -> bool:
        if self._follows(_ARGS) is None:
            return False
        self._mode = self._brace
        return True

    def _brace(self) -> bool:
        if not self._skip_spaces():
            return False
        if self._text[self._at] != "{":
            return self._give_back()
        self._begin(self._called)
        self._mode = self._arguments()
        return True

    def _arguments(self) -> Mode:
        scan = JsonScan()

        def read() -> bool:
            self._at = scan.feed(self._text, self._at)
            self._add(scan.take())
            if scan.status is not Status.OPEN:
                self.has_called |= scan.status is Status.DONE
                self._mode = self._content
            return scan.status is not Status.OPEN

        return read
