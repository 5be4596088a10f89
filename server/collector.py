"""Joining the pieces of one answer for a caller that waits for the whole."""

from __future__ import annotations

import threading

from server.outputs import Completion, Output, Usage


class Collector:
    """``push`` takes the pieces, on the engine's thread; ``wait`` blocks until the last came."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._last: Output | None = None
        self._done = threading.Event()

    def push(self, piece: Output) -> None:
        """Take a piece."""
        self._text.append(piece.text)
        self._tokens.extend(piece.token_ids)
        if piece.finish_reason is not None:
            self._last = piece
            self._done.set()

    def wait(self) -> Completion:
        """The whole answer."""
        self._done.wait()
        assert self._last is not None
        usage: Usage = self._last.usage
        reason = self._last.finish_reason or ""
        return Completion("".join(self._text), tuple(self._tokens), reason, usage, self._last.error)
