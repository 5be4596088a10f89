"""The process that converts and compiles each new grammar before this one compiles it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from server.constrained import compiling
from server.constrained.compiling import (
    COMPILE,
    CONVERT,
    CPU_SECONDS,
    read_message,
    write_message,
)

logger = logging.getLogger(__name__)

_WALL_SECONDS = 30.0  # where the machine is busy with something else
_WAITING_SECONDS = 2.0  # others' prompts wait for the thread that waits
_CLOSING_SECONDS = 0.5


class TrialBusy(Exception):
    """Another grammar takes long."""


class Trial:
    """Tells what is wrong with a grammar, whatever happens to whoever tries it.

    The process is started with the first grammar, and anew after each that ended it; it ends with
    this one. Thread-safe: one grammar at a time, and others wait two seconds at most.
    """

    def __init__(self, definition: str, vocabulary: int, end_tokens: Sequence[int]) -> None:
        self._setup = json.dumps(
            {"definition": definition, "vocabulary": vocabulary, "end_tokens": list(end_tokens)}
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._one = threading.Lock()
        self._closed = False

    def in_lark(self, source: str) -> tuple[str, str]:
        """A grammar in Lark or GBNF as one in Lark, and what is wrong with it. As `problem`."""
        return self._ask(CONVERT, source)

    def problem(self, grammar: str) -> str:
        """What is wrong with a grammar in Lark: empty where it is good. Blocks: about a
        millisecond, the first time half a second. Raises TrialBusy, or RuntimeError once it was
        closed."""
        return self._ask(COMPILE, grammar)[1]

    def close(self) -> None:
        """End the process, whatever it does."""
        self._closed = True
        process = self._process
        if not self._one.acquire(timeout=_CLOSING_SECONDS):
            if process is not None:
                process.kill()
            self._one.acquire()
        try:
            if self._process is not None:
                self._end(self._process)
        finally:
            self._one.release()

    def _ask(self, task: str, grammar: str) -> tuple[str, str]:
        if not self._one.acquire(timeout=_WAITING_SECONDS):
            raise TrialBusy
        try:
            if self._closed:
                raise RuntimeError("no grammars are compiled any more")
            reply = self._reply_of(self._running(), json.dumps((task, grammar)))
            if reply is None:
                return "", self._how_it_ended()
            text, problem = json.loads(reply)
            return text, problem
        finally:
            self._one.release()

    def _reply_of(self, process: subprocess.Popen[bytes], request: str) -> str | None:
        """None: there is none, or none in time."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_message(process.stdin, request)
            ready, _, _ = select.select([process.stdout], [], [], _WALL_SECONDS)
            return read_message(process.stdout) if ready else None
        except OSError:
            return None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", compiling.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # a crash is told by its signal
                env=os.environ | {"PYTHONPATH": os.pathsep.join(_search_path())},
                start_new_session=True,  # Ctrl-C is for the server
            )
            assert self._process.stdin is not None
            write_message(self._process.stdin, self._setup)
        return self._process

    def _how_it_ended(self) -> str:
        process, self._process = self._process, None
        assert process is not None
        status = self._end(process)
        if status == -signal.SIGPROF:
            return f"it takes more than {CPU_SECONDS:g} seconds to compile"
        logger.warning("a grammar has ended the process that tried it with status %d", status)
        return "it is nested too deeply, or takes too much memory to compile"

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        with contextlib.suppress(OSError):  # what it has not read is lost with it
            process.stdin.close()
        try:
            return process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _search_path() -> list[str]:
    return [entry or os.getcwd() for entry in sys.path]
