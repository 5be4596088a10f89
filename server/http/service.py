"""What the endpoints share: the engine, threads for blocking calls, and whether the server ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from server.http.bridge import Bridge
from server.http.engine_like import EngineLike
from server.http.errors import engine_stopped, shutting_down
from server.http.shutdown import Shutdown
from server.http.submission import Piece

Result = TypeVar("Result")

_MAX_TEXT_THREADS = 4
_ENGINE_THREADS = 2


class Service:
    """The engine as the endpoints use it.

    Texts are parsed and tokenised on threads of their own, so that neither a long prompt nor a
    call that waits for the engine's step ever stops the event loop or the other kind.
    """

    def __init__(self, engine: EngineLike, shutdown: Shutdown, max_body_bytes: int) -> None:
        self.engine = engine
        self.shutdown = shutdown
        self.max_body_bytes = max_body_bytes
        self.bridge: Bridge[Piece] = Bridge()
        text_threads = min(_MAX_TEXT_THREADS, os.cpu_count() or 1)
        self._text = ThreadPoolExecutor(text_threads, thread_name_prefix="text")
        self._blocking = ThreadPoolExecutor(_ENGINE_THREADS, thread_name_prefix="engine-call")

    def check_open(self) -> None:
        """Raise ApiError 503 if no new request can be answered."""
        if self.shutdown.begun:
            raise shutting_down()
        if not self.engine.is_alive():
            raise engine_stopped()

    async def on_text_thread(self, work: Callable[[], Result]) -> Result:
        """The result of ``work``, which parses or tokenises."""
        return await asyncio.get_running_loop().run_in_executor(self._text, work)

    async def between_steps(self, work: Callable[[], Result]) -> Result:
        """The result of ``work``, which waits for a gap between two steps.

        Raises ApiError 503 if the engine has ended, or ends meanwhile.
        """
        self.check_open()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._blocking, work)
        except RuntimeError:
            self.check_open()  # it ended meanwhile
            raise

    def close(self) -> None:
        """Let the threads end once they are idle."""
        self._text.shutdown(wait=False, cancel_futures=True)
        self._blocking.shutdown(wait=False, cancel_futures=True)
