"""An engine in a process of its own, driven line by line."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from workloads.cpu.load import EngineFailed, Load, LoadFailed, Outcome, checked_outcome
from workloads.cpu.processes import end_group
from workloads.own_server import log_tail

ROOT = Path(__file__).resolve().parents[2]
END_LIMIT_S = 5.0


class RunningEngine(Protocol):
    """An engine that is ready. ``ready_s``: from its start until then; ``about``: its own words."""

    pid: int
    ready_s: float
    about: Mapping[str, Any]

    def run(self, load: Load, limit_s: float) -> Outcome:
        """Do a load. Raises LoadFailed, or EngineFailed where it is of no more use."""
        ...

    def stop(self) -> None:
        """End it and all that it started."""
        ...


class Worker:
    """A worker process that speaks `line_protocol`, for the length of a benchmark.

    Starting waits until it is ready, at most ``limit_s``. Raises EngineFailed with the end of its
    log. It waits on its standard input between loads, so it takes no processor time then.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        limit_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        log.parent.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        try:
            with log.open("wb") as errors:
                # A session of its own: Ctrl-C at the terminal reaches it through us alone.
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=ROOT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineFailed(f"it cannot be started: {error}") from error
        threading.Thread(target=self._read, daemon=True).start()
        self.pid = self._process.pid
        try:
            self.about: Mapping[str, Any] = self._answer(limit_s)["ready"]
        except BaseException as error:
            self.stop()
            if isinstance(error, KeyError):
                raise EngineFailed("its first line does not say that it is ready") from error
            raise
        self.ready_s = time.perf_counter() - start

    def run(self, load: Load, limit_s: float) -> Outcome:
        """Do a load and wait for it at most ``limit_s``. Raises LoadFailed or EngineFailed."""
        line = json.dumps({"sessions": load.sessions, "max_tokens": load.max_tokens})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._dead() from error
        answer = self._answer(limit_s)
        if "error" in answer:
            raise LoadFailed(str(answer["error"]))
        try:
            return checked_outcome(load, answer["sessions"], answer["wall_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise EngineFailed(f"its answer is not as expected: {str(answer)[:200]}") from error

    def stop(self) -> None:
        """End the worker: by the end of its input, else by signals, with all that it started."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_LIMIT_S)
        finally:
            end_group(self._process)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.decode(errors="replace"))
        self._lines.put(None)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            raise EngineFailed(f"no answer within {limit_s:.0f} s") from None
        if line is None:
            raise self._dead()
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise EngineFailed(f"its answer is no JSON object: {line[:200]!r}")
        return answer

    def _dead(self) -> EngineFailed:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_LIMIT_S)
        status = self._process.poll()
        return EngineFailed(
            f"it ended with status {status}; the end of {self._log}:\n{log_tail(self._log)}"
        )
