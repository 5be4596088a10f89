"""From the engine's thread to the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Bridge(Generic[Item]):
    """Carries items to receivers that run on the event loop, in order.

    The loop is woken once for all that was posted since it last ran, however many requests a step
    had outputs for: waking costs a system call, posting does not.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._posted: deque[tuple[Callable[[Item], None], Item]] = deque()
        self._woken = False

    def attach(self) -> None:
        """Deliver on the running loop from now on."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._woken = loop, False

    def post(self, receive: Callable[[Item], None], item: Item) -> None:
        """Have ``receive(item)`` called on the loop soon. Any thread; never blocks or raises."""
        # Order matters: the item is in the queue before the flag is read, and _deliver clears the
        # flag before it empties the queue, so no item is left without a wake-up.
        self._posted.append((receive, item))
        if self._woken or self._loop is None:
            return
        self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop has closed: nobody is left to tell
            self._posted.clear()
            self._woken = False

    def _deliver(self) -> None:
        self._woken = False
        while self._posted:
            receive, item = self._posted.popleft()
            receive(item)
