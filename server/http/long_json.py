"""JSON of answers with many entries, in pieces: the encoder stops all other threads meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from fastapi.responses import JSONResponse

_ENTRIES = 200  # some hundred microseconds


class LongResponse(JSONResponse):
    """A JSON response that is made on a thread beside others."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return long_json(content, _encode).encode()


def long_json(value: Any, encode: Callable[[Any], str]) -> str:
    """What ``encode``, which writes no white space, makes of a value."""
    return "".join(_pieces(value, encode))


def _pieces(value: Any, encode: Callable[[Any], str]) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for place, (key, each) in enumerate(value.items()):
            yield f"{',' if place else '{'}{encode(key)}:"
            yield from _pieces(each, encode)
        yield "}"
    elif isinstance(value, list) and len(value) > _ENTRIES:
        for first in range(0, len(value), _ENTRIES):
            yield ("," if first else "[") + encode(value[first : first + _ENTRIES])[1:-1]
        yield "]"
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for place, each in enumerate(value):
            yield "," if place else "["
            yield from _pieces(each, encode)
        yield "]"
    else:
        yield encode(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
