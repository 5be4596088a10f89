"""Joining the pieces of a prompt's answers for a caller that waits for the whole."""

from __future__ import annotations

import threading

from server.outputs import Completion, Output


class Collector:
    """``push`` takes the pieces of ``count`` answers, on the engine's thread; ``wait`` blocks until
    the last has come."""

    def __init__(self, count: int) -> None:
        self._pieces: list[list[Output]] = [[] for _ in range(count)]
        self._running = count
        self._done = threading.Event()

    def push(self, piece: Output) -> None:
        """Take a piece."""
        self._pieces[piece.index].append(piece)
        if piece.finish_reason is not None:
            self._running -= 1
            if not self._running:
                self._done.set()

    def wait(self) -> list[Completion]:
        """The whole answers, in the order of their numbers."""
        self._done.wait()
        return [join(pieces) for pieces in self._pieces]


def join(pieces: list[Output]) -> Completion:
    """The whole answer, of which these are all pieces in order."""
    first, last = pieces[0], pieces[-1]
    logprobs = None
    if first.logprobs is not None:
        logprobs = tuple(each for piece in pieces for each in piece.logprobs or ())
    return Completion(
        "".join(piece.text for piece in pieces),
        tuple(token for piece in pieces for token in piece.token_ids),
        last.finish_reason or "",
        last.usage,
        last.error,
        last.index,
        last.score,
        logprobs,
        None if first.prompt_logprobs is None else tuple(first.prompt_logprobs),
        last.stop_reason,
    )
