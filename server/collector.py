"""Joining the pieces of a prompt's answers for a caller that waits for the whole."""

from __future__ import annotations

import threading

from server.outputs import Completion, Output


class Collector:
    """``push`` takes the pieces of ``count`` answers, on the engine's thread; ``wait`` blocks until
    the last has come."""

    def __init__(self, count: int) -> None:
        self._text: list[list[str]] = [[] for _ in range(count)]
        self._tokens: list[list[int]] = [[] for _ in range(count)]
        self._last: dict[int, Output] = {}
        self._done = threading.Event()

    def push(self, piece: Output) -> None:
        """Take a piece."""
        self._text[piece.index].append(piece.text)
        self._tokens[piece.index].extend(piece.token_ids)
        if piece.finish_reason is not None:
            self._last[piece.index] = piece
            if len(self._last) == len(self._text):
                self._done.set()

    def wait(self) -> list[Completion]:
        """The whole answers, in the order of their numbers."""
        self._done.wait()
        return [
            Completion(
                "".join(text),
                tuple(tokens),
                self._last[index].finish_reason or "",
                self._last[index].usage,
                self._last[index].error,
                index,
                self._last[index].score,
            )
            for index, (text, tokens) in enumerate(zip(self._text, self._tokens, strict=True))
        ]
