"""The numbers by which the scheduler knows requests."""

from __future__ import annotations

import threading


class RequestIds:
    """From 1 on. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1

    def take(self, count: int = 1) -> int:
        """The first of ``count`` numbers that follow one another: answer ``j`` to a prompt is the
        request whose number is ``j`` more than the prompt's."""
        with self._lock:
            first = self._next
            self._next += count
            return first
