"""Stop strings: where an answer's text ends, though tokens do not end where the strings begin."""

from __future__ import annotations


class StopStrings:
    """Finds the first of some strings in text that comes in pieces.

    Text is held back only while it may still turn out to be the beginning of a stop string.
    Cost per piece: O(its length and the longest stop string, times their number).
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, piece: str) -> tuple[str, bool]:
        """The text that can be shown now, and whether a stop string has ended the answer."""
        if not self._stops:
            return piece, False
        text = self._held + piece
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._held = ""
            return text[: min(found)], True
        keep = max(_beginning_at_the_end(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """What is still held back; no stop string came."""
        held, self._held = self._held, ""
        return held


def _beginning_at_the_end(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop`` without being all of it."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
