"""Starts a server of our own as a process, waits until it is ready, and stops it for sure."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from server.config.option import PREFIX

# The first start may fetch and convert a model.
READY_LIMIT_S = 900.0
STOP_LIMIT_S = 20.0
_LOG_TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1
# A direct connection: proxy settings of the surroundings must not reach for 127.0.0.1.
_opener = build_opener(ProxyHandler({}))


class ServerFailed(Exception):
    """The server did not start or died; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers at ``url``. The rest is None for one we did not start."""

    url: str
    pid: int | None = None
    log: Path | None = None
    ready_s: float | None = None


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def server_command(port: int, options: Sequence[str]) -> list[str]:
    """The command line of a server on ``port`` with this interpreter."""
    return [sys.executable, "-m", "server", "--port", str(port), *options]


@contextmanager
def own_server(
    command: Sequence[str],
    port: int,
    log: Path,
    poll_s: float = 0.1,
    environment: Mapping[str, str] | None = None,
) -> Iterator[RunningServer]:
    """Run a server for the length of a with block.

    Its output goes to ``log``; ``environment`` is its own, None for this process's. Options of our
    server in there (RADIX_...) are left out: what is measured is what the command says. It is
    ready at the first 200 of /ready (of /health, where there is no such path, as other engines
    have it), asked every ``poll_s`` seconds; ``ready_s`` is the time from starting the process to
    then. On the way out, by whatever way, it gets SIGTERM and, if it is still there after 20 s,
    SIGKILL with all it started. Raises ServerFailed with the log's end if it ends before it is
    ready or takes longer than 15 minutes.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        start = time.perf_counter()
        # A session of its own: Ctrl-C at the terminal reaches it through us alone, and whatever it
        # starts can be ended with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_without_options(os.environ if environment is None else environment),
            start_new_session=True,
            preexec_fn=_ending_with_us(),
        )
        try:
            _wait_until_ready(process, url, log, start, poll_s)
            yield RunningServer(url, process.pid, log, time.perf_counter() - start)
        finally:
            stop(process)


def _without_options(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}


def _ending_with_us() -> Callable[[], None] | None:
    """Has a process end by SIGTERM when this one does, also where that is killed and cannot stop
    it: to be run in the new process. None where the system cannot."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return None
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_ready(
    process: subprocess.Popen[bytes], url: str, log: Path, start: float, poll_s: float
) -> None:
    while True:
        ready, status = _is_ready(url), process.poll()
        if status is not None:
            raise ServerFailed(
                f"the server ended with status {status} before it was ready; the end of {log}:\n"
                + log_tail(log)
            )
        if ready:
            return
        if time.perf_counter() - start > READY_LIMIT_S:
            raise ServerFailed(
                f"the server was not ready after {READY_LIMIT_S:.0f} s; the end of {log}:\n"
                + log_tail(log)
            )
        time.sleep(poll_s)


def _is_ready(url: str) -> bool:
    status = _status_of(f"{url}/ready")
    return (_status_of(f"{url}/health") if status == 404 else status) == 200


def _status_of(url: str) -> int | None:
    """None where nobody answers."""
    try:
        with _opener.open(url, timeout=5) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except (URLError, OSError):
        return None


def log_tail(log: Path) -> str:
    """The last lines of a log, indented; a remark where it is empty or missing."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"  (no log: {error})"
    return "\n".join(f"  {line}" for line in lines[-_LOG_TAIL_LINES:]) or "  (empty)"


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process of ours: SIGTERM, a bounded wait, then SIGKILL for it and its children."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except BaseException as error:  # a second Ctrl-C while waiting must not leave it behind
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise


def peak_memory_bytes(pid: int) -> int | None:
    """The most resident memory a process has had (VmHWM); None where the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


class Stopped(SystemExit):
    """SIGTERM or SIGHUP asked us to end; the code is 128 plus the signal's number."""


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP unwind like Ctrl-C, so that servers are stopped."""

    def unwind(number: int, frame: FrameType | None) -> None:
        raise Stopped(128 + number)

    before = {n: signal.signal(n, unwind) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
