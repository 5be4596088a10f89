"""From a body's JSON to Python's values, without stopping other threads for long.

The parser holds Python's lock from its first byte to its last, some 40 ns for each value; text
costs next to nothing. So lists of token ids, of which a body may have millions, are cut out first
and read piece by piece into compact arrays. Of all else there may be only so many values.
"""

from __future__ import annotations

import re
import secrets
from array import array
from typing import Any, TypeAlias

from pydantic_core import from_json

from radix_engine.cache import token_array

MAX_VALUES = 100_000  # in one body, besides lists of token ids
_LONG_BYTES = 1 << 15  # a shorter body is parsed in one go
_PIECE_BYTES = 1 << 15
_KEYS = ("prompt", "tokens")
_MOST_PLACES = 8  # where one of these words is looked at
_LISTS = re.compile(rb'"[a-z]+"\s*:\s*(?:\[\s*)?\[\s*[0-9]')
_OUTER = re.compile(rb"\[\s*\[")
_NEXT = re.compile(rb"\s*,\s*\[")
_END = re.compile(rb"\s*\]")
_IN_LISTS = b"0123456789, \t\r\n"

TokenLists: TypeAlias = "array[int] | list[array[int]]"


class TooManyValues(ValueError):
    """A body has more values than anybody needs."""


def read_json(body: bytes, *, arrays: bool) -> Any:
    """The value of strict JSON in UTF-8. With ``arrays`` lists of token ids that are a long body's
    ``prompt`` or ``tokens`` come as int32 arrays.

    Raises ValueError: NaN, Infinity, lone surrogates and nesting beyond 200 levels are no JSON; and
    TooManyValues.
    """
    if len(body) < _LONG_BYTES:
        return from_json(body, allow_inf_nan=False)
    start = _start_of_lists(body)
    found = None if start is None else _read_around(body, start)
    if found is not None:
        data, key = found
        if not arrays:
            data[key] = _as_lists(data[key])
        return data
    _check_values(body)
    return from_json(body, allow_inf_nan=False)


def _start_of_lists(body: bytes) -> int | None:
    """Where lists of numbers seem to begin."""
    for key in _KEYS:
        at = -1
        for _ in range(_MOST_PLACES):
            at = body.find(b'"%s"' % key.encode(), at + 1)
            if at < 0:
                break
            if _LISTS.match(body, at):
                return body.index(b"[", at)
    return None


def _read_around(body: bytes, start: int) -> tuple[dict[str, Any], str] | None:
    """The body, and the field whose value are the token ids that seem to be at ``start``; None
    where that is something else, such as a text that looks like it."""
    try:
        ids, end = _read_lists(body, start)
        mark = secrets.token_hex(16)
        rest = b'%s"%s"%s' % (body[:start], mark.encode(), body[end:])
        _check_values(rest)
        data = from_json(rest, allow_inf_nan=False)
    except (ValueError, OverflowError):
        return None  # the whole of it is parsed to tell what is wrong
    for key in _KEYS if isinstance(data, dict) else ():
        if data.get(key) == mark:
            data[key] = ids
            return data, key
    return None


def _as_lists(ids: TokenLists) -> list[Any]:
    return [each.tolist() for each in ids] if isinstance(ids, list) else ids.tolist()


def _read_lists(body: bytes, start: int) -> tuple[TokenLists, int]:
    """The list of numbers, or of such lists, at ``start``, and where it ends. Raises ValueError or
    OverflowError where it is none."""
    outer = _OUTER.match(body, start)
    if outer is None:
        return _read_list(body, start)
    lists: list[array[int]] = []
    at = outer.end() - 1
    while True:
        ids, at = _read_list(body, at)
        lists.append(ids)
        following = _NEXT.match(body, at)
        if following is None:
            break
        at = following.end() - 1
    end = _END.match(body, at)
    if end is None:
        raise ValueError("the list of lists does not end")
    return lists, end.end()


def _read_list(body: bytes, start: int) -> tuple[array[int], int]:
    """One list of numbers, from its bracket on, and where it ends."""
    end = body.index(b"]", start)
    ids, cut = token_array(), start
    while cut >= 0:
        at = cut + 1
        cut = body.find(b",", at + _PIECE_BYTES, end)
        piece = body[at : end if cut < 0 else cut]
        if not piece.strip() or piece.translate(None, _IN_LISTS):
            raise ValueError("not only numbers")
        ids.extend(from_json(b"[%s]" % piece))
    return ids, end + 1


def _check_values(body: bytes) -> None:
    """Raise TooManyValues where the body has too many. Cost: the bytes, and strings up to then."""
    if body.count(b",") < MAX_VALUES:
        return
    values = at = 0
    while (quote := body.find(b'"', at)) >= 0:  # commas count outside of strings
        values += body.count(b",", at, quote)
        if values >= MAX_VALUES:
            break
        at = _end_of_string(body, quote)
    else:
        values += body.count(b",", at)
    if values >= MAX_VALUES:
        raise TooManyValues(f"more than {MAX_VALUES} values")


def _end_of_string(body: bytes, quote: int) -> int:
    """The place after the string that begins with the quote at this place."""
    at = quote + 1
    while (end := body.find(b'"', at)) >= 0:
        escapes = end
        while body[escapes - 1] == ord("\\") and escapes > at:
            escapes -= 1
        if (end - escapes) % 2 == 0:
            return end + 1
        at = end + 1
    return len(body)
