"""Stop strings: where an answer's text ends, though tokens do not end where the strings begin."""

from __future__ import annotations


class StopStrings:
    """Finds the first of some strings in text that comes in pieces.

    Text is held back only while it may still turn out to be the beginning of a stop string.
    ``included``: the string that ends the answer is part of its text. Cost per piece: O(its length
    and the longest stop string, times their number).
    """

    def __init__(self, stops: tuple[str, ...], included: bool = False) -> None:
        self._stops = stops
        self._included = included
        self._held = ""

    def push(self, piece: str, *, may_end: bool = True) -> tuple[str, str | None]:
        """The text that can be shown now, and the stop string that has ended the answer. Where it
        may not end yet, strings that are complete by now are text like any other."""
        if not self._stops:
            return piece, None
        text = self._held + piece
        if may_end:
            first = self._first(text)
            if first is not None:
                self._held = ""
                place, stop = first
                return text[: place + len(stop) if self._included else place], stop
        keep = max(_beginning_at_the_end(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], None

    def flush(self) -> str:
        """What is still held back; no stop string came."""
        held, self._held = self._held, ""
        return held

    def _first(self, text: str) -> tuple[int, str] | None:
        """The first of the strings that the newest piece completes, and its place: those that end
        in what was held back were complete when the answer could not end yet."""
        found = [
            (place, stop)
            for stop in self._stops
            if (place := text.find(stop, max(0, len(self._held) - len(stop) + 1))) >= 0
        ]
        return min(found, key=lambda each: each[0], default=None)


def _beginning_at_the_end(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop`` without being all of it."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
