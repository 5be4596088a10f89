"""What kind of thing two texts differ in, from how both go on after what they share.

Pure: texts in, a kind and the span's beginning out. The patterns are looked for around the place
where both part, in either text; they must begin at the same character.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from server.near_miss.finding import Kind

_AROUND = 96
_MOST_JSON = 1 << 16
_MOST_OPENINGS = 32

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\b)?"
_DATE = (
    r"(?:\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|"
    rf"{_DAY}{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}|"
    rf"{_DAY}\d{{1,2}}\.?\s+{_MONTH},?\s+\d{{4}})"
)
_ZONE = r"(?:\s?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("uuid", r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"),
    (
        "clock",
        rf"{_DATE}(?:[T\s,]+(?:at\s+)?){_TIME}{_ZONE}|"
        rf"{_DAY}{_MONTH}\s+\d{{1,2}}\s+{_TIME}{_ZONE}(?:\s+\d{{4}})?|"
        rf"{_TIME}{_ZONE}|\b1[5-9]\d{{8}}(?:\d{{3}}|\.\d+)?(?:\d{{3}})?\b",
    ),
    ("date", _DATE),
    ("hex", r"\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b"),
    ("id", r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{12,}"),
    ("number", r"\b\d+(?:[.,]\d+)*\b"),
)
_COMPILED = [(kind, re.compile(pattern)) for kind, pattern in _PATTERNS]
# Rather what a user is likely to write than what a program puts in.
STAMPS: tuple[Kind, ...] = ("clock", "date", "uuid")


class Span(NamedTuple):
    """``start``: the character, of what comes before the parting and after it, at which the span
    begins; ``end`` and ``stored_end``: where it ends in either text."""

    kind: Kind
    start: int
    end: int
    stored_end: int


def volatile_span(text: str, stored: str, place: int) -> Span | None:
    """A time, an id or a number in which both texts differ at character ``place``, up to which they
    are the same. None where it is something else. Cost: constant."""
    base = max(0, place - _AROUND)
    here, there = text[base : place + _AROUND], stored[base : place + _AROUND]
    for kind, pattern in _COMPILED:
        one, other = _match(pattern, here, place - base), _match(pattern, there, place - base)
        if one is None or other is None or one[0] != other[0]:
            continue
        if here[slice(*one)] != there[slice(*other)]:
            return Span(kind, base + one[0], base + one[1], base + other[1])
    return None


def _match(pattern: re.Pattern[str], text: str, place: int) -> tuple[int, int] | None:
    """Where the pattern is found so that it covers a place, or ends there."""
    for found in pattern.finditer(text):
        if found.start() <= place <= found.end():
            return found.span()
        if found.start() > place:
            return None
    return None


def json_span(text: str, stored: str, place: int) -> Span | None:
    """A JSON value around ``place``, up to which the texts are the same, that says the same in both
    and is written in two ways. Cost: parsing of up to 32 values
    that begin at most 64 Ki characters before it."""
    decoder = json.JSONDecoder()
    openings = 0
    for start in range(place, max(-1, place - _MOST_JSON), -1):
        if text[start : start + 1] not in ("{", "["):
            continue
        openings += 1
        if openings > _MOST_OPENINGS:
            return None
        try:
            one, end = decoder.raw_decode(text, start)
            other, stored_end = decoder.raw_decode(stored, start)
        except (ValueError, RecursionError):
            continue
        if end > place and stored_end > place and _same(one, other):
            return Span("json_form", start, end, stored_end)
    return None


def _same(one: Any, other: Any) -> bool:
    """Whether two values say the same, also where they are JSON in a string."""
    if isinstance(one, str) and isinstance(other, str) and one != other:
        try:
            return bool(json.loads(one) == json.loads(other)) and one[:1] in ("{", "[")
        except (ValueError, RecursionError):
            return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
