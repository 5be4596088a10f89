"""Noise at the head of a system prompt: words for somebody else, which change with each request.

A prompt is reused from its first token on, so a line of that kind before a system prompt of
thousands of tokens leaves nothing of it to reuse. Claude Code writes one; it says nothing to a
model, so it is taken out before the prompt is rendered.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path

# Pairs of a name and a value where that is what it holds, since what follows them on the same line
# may be the prompt; else the line.
CLAUDE_CODE = (
    r"x-anthropic-billing-header:"
    r"(?:(?:[ \t]*[\w.-]+=(?:[^;\n]*;|[^;\s]*(?=\n|\Z)))+[ \t]*|[^\n]*)\n*"
)


@dataclass(frozen=True, slots=True)
class HeadNoise:
    """Regular expressions (Python's ``re``) of what is stripped from the head of system prompts; an
    empty tuple: nothing is.

    Raises ValueError for one that is no regular expression, or that matches an empty text.
    """

    patterns: tuple[str, ...] = (CLAUDE_CODE,)

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            try:
                empty = re.match(pattern, "")
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
            if empty:
                raise ValueError(f"{pattern!r} matches an empty text; let it begin with some words")


def read_head_noise(path: Path) -> HeadNoise:
    """The patterns in a file: one a line, without empty lines and those that begin with ``#``.

    Raises ValueError as `HeadNoise` does, naming the file, and OSError.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        return HeadNoise(tuple(line for line in lines if line.strip() and not line.startswith("#")))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class NoiseFilter:
    """Strips what `HeadNoise` names, and counts how often each pattern was found. Thread-safe."""

    def __init__(self, noise: HeadNoise) -> None:
        self._patterns = [re.compile(pattern) for pattern in noise.patterns]
        self._counts = [0] * len(self._patterns)
        self._lock = threading.Lock()

    def strip(self, text: str) -> tuple[str, int]:
        """A system prompt without the noise at its head; and how many pieces that were."""
        at = pieces = 0
        while (found := self._find(text, at)) > at:
            at = found
            pieces += 1
        return text[at:], pieces

    def counts(self) -> list[tuple[str, int]]:
        """How often each pattern was found so far."""
        return [
            (each.pattern, count) for each, count in zip(self._patterns, self._counts, strict=True)
        ]

    def _find(self, text: str, at: int) -> int:
        """Where the noise at this place ends."""
        for place, pattern in enumerate(self._patterns):
            found = pattern.match(text, at)
            if found is not None and found.end() > at:
                with self._lock:
                    self._counts[place] += 1
                return found.end()
        return at
