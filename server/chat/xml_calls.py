"""Tool calls in tags all the way down, as Qwen3-Coder and Qwen3.5 write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.chat.argument_types import parameters_of, to_json, types_of
from server.chat.calls import CallsParser, Mode, new_call_id
from server.chat.markers import Found, find

_TAG = "<tool_call>"
_FUNCTION = "<function="
_PARAMETER = "<parameter="
_END_FUNCTION = "</function>"
_END_PARAMETER = "</parameter>"
_MAX_NAME = 256
# One line break on either side of a value is markup. Inside of a value only a tag at the beginning
# of a line counts, but for the one that closes it.
_VALUE_ENDS = (_END_PARAMETER, f"\n{_END_PARAMETER}", f"\n{_PARAMETER}", f"\n{_END_FUNCTION}")


class XmlCalls(CallsParser):
    """``<tool_call><function=name><parameter=key>value</parameter></function></tool_call>``.

    The outer tag may be missing, and a parameter's closing tag. Values are plain text: their types
    come from the tools' ``definitions``. Values of strings are given out as they come, others at
    their end.
    """

    openings = (_TAG, _FUNCTION)

    def __init__(
        self,
        new_id: Callable[[], str] = new_call_id,
        hidden: Sequence[str] = (),
        definitions: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(new_id, hidden)
        self._schemas = parameters_of(definitions)
        self._schema: Mapping[str, Any] = {}
        self._called = ""
        self._is_first = True
        self._types: frozenset[str] = frozenset()
        self._value = ""  # of a parameter that is given out at its end

    def _opened(self, marker: str) -> Mode:
        return self._function if marker == _TAG else self._name

    def _function(self) -> bool:
        follows = self._follows(_FUNCTION) if self._skip_spaces() else None
        if follows is None:
            return False
        self._mode = self._name
        return follows or self._give_back()

    def _name(self) -> bool:
        name = self._up_to_bracket()
        if name is None:
            return False
        if not name:
            return self._give_back()
        self._called, self._schema, self._is_first = name, self._schemas.get(name, {}), True
        self._mode = self._first
        return True

    def _first(self) -> bool:
        """Before the first parameter; what is anything else is no call."""
        tag = self._next_tag()
        if tag is None:
            return False
        if not tag:
            return self._give_back()
        self._begin(self._called)
        self._mode = self._key if tag == _PARAMETER else self._end
        return True

    def _between(self) -> bool:
        """Between two parameters."""
        tag = self._next_tag()
        if tag is None:
            return False
        self._mode = {_PARAMETER: self._key, _END_FUNCTION: self._end}.get(tag, self._content)
        return True

    def _key(self) -> bool:
        key = self._up_to_bracket()
        if key is None:
            return False
        if not key:
            self._say(_PARAMETER)
            self._mode = self._content
            return True
        properties = self._schema.get("properties")
        schema = properties.get(key) if isinstance(properties, Mapping) else None
        self._types = types_of(schema, self._schema) or frozenset({"string"})
        self._add(("{" if self._is_first else ", ") + f"{json.dumps(key, ensure_ascii=False)}: ")
        self._is_first, self._value, self._mode = False, "", self._break
        return True

    def _break(self) -> bool:
        """The line break before a value."""
        if self._at == len(self._text):
            return False
        self._at += self._text[self._at] == "\n"
        if self._is_string:
            self._add('"')
        self._mode = self._in_value
        return True

    def _in_value(self) -> bool:
        found = self._value_end()
        piece, self._at = self._text[self._at : found.start], found.start
        if self._is_string:
            self._add(json.dumps(piece, ensure_ascii=False)[1:-1])
        else:
            self._value += piece
        if found.marker is None:
            return False
        self._at += len(found.marker)
        self._add('"' if self._is_string else to_json(self._value, self._types))
        ends = {_PARAMETER: self._key, _END_FUNCTION: self._end}
        self._mode = ends.get(found.marker.strip(), self._between)
        return True

    def _value_end(self) -> Found:
        """Where the value ends, or may end. A closing tag inside of a line ends it only where
        another tag follows: values may speak of tags."""
        start = self._at
        while True:
            found = find(self._text, start, _VALUE_ENDS)
            if found.marker != _END_PARAMETER:
                return found
            after = found.start + len(_END_PARAMETER)
            rest = self._text[after:].lstrip()
            if rest.startswith((_PARAMETER, _END_FUNCTION)):
                return found
            if any(tag.startswith(rest) for tag in (_PARAMETER, _END_FUNCTION)):
                return Found(found.start, None)
            start = after

    def _end(self) -> bool:
        """The call has ended, maybe with the outer tag."""
        self._add("{}" if self._is_first else "}")
        self.has_called, self._mode = True, self._close
        return True

    @property
    def _is_string(self) -> bool:
        return self._types == frozenset({"string"})

    def _up_to_bracket(self) -> str | None:
        """A name in a tag that has begun, which is passed; empty if it cannot be one, None if its
        end has not come."""
        end = self._text.find(">", self._at)
        line = self._text.find("\n", self._at, end if end >= 0 else len(self._text))
        if line >= 0 or (end < 0 and len(self._text) - self._at > _MAX_NAME):
            return ""
        if end < 0:
            return None
        name, self._at = self._text[self._at : end].strip(), end + 1
        return name

    def _next_tag(self) -> str | None:
        """The tag that comes next, which is passed; empty for anything else, None if it has not
        come."""
        start = self._at
        more = self._skip_spaces()
        for tag in (_PARAMETER, _END_FUNCTION) if more else ():
            follows = self._follows(tag)
            if follows:
                return tag
            more = more and follows is not None
        self._at = start
        return "" if more else None
