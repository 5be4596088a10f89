"""Tool calls as JSON objects: between tags (Hermes, Qwen), or with nothing around them (Llama)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from server.chat.call_object import CallObject
from server.chat.calls import CallsParser, Mode, new_call_id

_PYTHON_TAG = "<|python_tag|>"


class TaggedCalls(CallsParser):
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, any number, anywhere."""

    openings = ("<tool_call>",)

    def _opened(self, marker: str) -> Mode:
        call = CallObject()

        def read() -> bool:
            return self._read_object(call, self._close)

        return read


class BareCalls(CallsParser):
    """``{"name": ..., "parameters": {...}}`` as the answer's first word, or after a special token;
    several with ``;`` or a line break between them.

    A lone object may well be an answer in JSON, so it is a call only with arguments, and (where
    ``names`` are known) with the name of a tool.
    """

    openings = (_PYTHON_TAG,)

    def __init__(
        self,
        new_id: Callable[[], str] = new_call_id,
        hidden: Sequence[str] = (),
        names: Collection[str] = (),
    ) -> None:
        super().__init__(new_id, hidden)
        self._names = names
        self._mode = self._start

    def _start(self) -> bool:
        """The answer's first word."""
        self._open(0, 0)
        if not self._skip_spaces():
            return False
        if self._text[self._at] != "{":
            return self._give_back()
        self._mode = self._reading()
        return True

    def _opened(self, marker: str) -> Mode:
        return self._reading()

    def _reading(self) -> Mode:
        call = CallObject(strict=True, names=self._names)

        def read() -> bool:
            return self._read_object(call, self._next)

        return read

    def _next(self) -> bool:
        """After a call: another one, or something else."""
        start = self._at
        more = self._skip_spaces()
        separated = "\n" in self._text[start : self._at]
        if more and self._text[self._at] == ";":
            self._at, separated = self._at + 1, True
            more = self._skip_spaces()
        if not more and not self._ended:
            self._at = start
            return False
        if more and separated and self._text[self._at] == "{":
            self._open(start, start)
            self._mode = self._reading()
            return True
        self._at, self._mode = start, self._content
        return True
