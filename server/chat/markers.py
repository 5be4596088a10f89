"""Finding markers in text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Found(NamedTuple):
    """Where the text stops being plain: at ``start``, where ``marker`` begins, or (None) where the
    text ends with what may become a marker."""

    start: int
    marker: str | None


def find(text: str, start: int, markers: Sequence[str]) -> Found:
    """The first of some markers in a text from ``start``; of two that begin there, the longer.

    Cost: the length of the text, times the number of markers.
    """
    end = len(text)
    found, length = None, 0
    at_most = pending = end
    for marker in markers:
        at = text.find(marker, start)
        if at < 0:
            if found is None:
                pending = min(pending, beginning_at_the_end(text, start, marker))
        elif at < at_most or (at == at_most and len(marker) > length):
            found, at_most, length = marker, at, len(marker)
    return Found(pending if found is None else at_most, found)


def beginning_at_the_end(text: str, start: int, marker: str) -> int:
    """Where the longest end of a text from ``start`` begins that begins ``marker`` without being
    all of it; the text's length if there is none."""
    end = len(text)
    at = text.find(marker[0], max(start, end - len(marker) + 1))
    while at >= 0:
        if marker.startswith(text[at:]):
            return at
        at = text.find(marker[0], at + 1)
    return end
