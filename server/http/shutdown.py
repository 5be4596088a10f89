"""The one bit that says that the server is ending."""

from __future__ import annotations

from collections.abc import Callable


class Shutdown:
    """Set once, from any thread or signal handler; those who wait for it are called back."""

    def __init__(self) -> None:
        self._begun = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def begun(self) -> bool:
        """Whether new requests are refused."""
        return self._begun

    def begin(self) -> None:
        """Refuse new requests from now on. Safe to call again."""
        if self._begun:
            return
        self._begun = True
        for listener in self._listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called when it begins, at once if it has. It may be called twice."""
        # Added before the bit is read: begin() may run in between, on any thread.
        self._listeners.append(listener)
        if self._begun:
            listener()
