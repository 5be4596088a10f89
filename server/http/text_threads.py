"""The threads on which bodies are parsed, texts tokenized and long answers written.

Tokenizing lets other threads run, and what comes before and after it hardly does: Python has one
lock for all. Of what is long only one thing is done at a time, so that the loop and the engine
never wait for several; and on a thread of its own, so that what is short never waits for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

LONG_BYTES = 1 << 16  # 5 ms of parsing and tokenizing
_MAX_THREADS = 4
_SWITCH_S = 0.0005


class TextThreads:
    """Two kinds: for what is short, and for what is long."""

    def __init__(self) -> None:
        threads = min(_MAX_THREADS, os.cpu_count() or 1)
        self._short = ThreadPoolExecutor(threads, thread_name_prefix="text")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="long-text")

    async def run(self, work: Callable[[], Result], size: int) -> Result:
        """The result of ``work`` on a text of about ``size`` bytes."""
        threads = self._short if size < LONG_BYTES else self._long
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def close(self) -> None:
        """Let the threads end once they are idle."""
        for threads in (self._short, self._long):
            threads.shutdown(wait=False, cancel_futures=True)


def let_threads_take_turns() -> None:
    """For a process that serves: a thread that has Python's lock gives it away after half a
    millisecond, if others wait. Python's own 5 ms add up: a step takes the lock several times."""
    sys.setswitchinterval(_SWITCH_S)
