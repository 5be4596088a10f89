"""A worker's process as its parent sees it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection

from radix_engine.parallel.reports import Outcome, Report, decode_report

_SOON_S = 5.0  # a process whose socket is closed is about to end


class WorkerProcess:
    """The process of ``rank``, started anew, and a socket to it.

    It shares the standard output and error of this process, and finds modules where this one does.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "radix_engine.parallel.worker", str(number)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(_search_path())},
            )
        self.connection: Connection[bytes, bytes] = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def report(self) -> Report:
        """What the process has to say, once its socket can be read. The end of one that says
        nothing comes before all others."""
        try:
            report = decode_report(self.connection.recv_bytes())
        except (EOFError, OSError):
            return Report(Outcome.FAILED, 0, self._how_it_ended())
        if report.outcome == Outcome.FAILED:
            return Report(report.outcome, report.at_ns, f"failed:\n{report.text}")
        return report

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def end(self, timeout_s: float) -> None:
        """Wait for the process to end; kill it when it does not in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(_SOON_S)
        except subprocess.TimeoutExpired:
            return "has closed its connection"
        if status < 0:
            return f"was ended by {signal.Signals(-status).name}"
        return f"ended with status {status}"


def _search_path() -> list[str]:
    return [entry or os.getcwd() for entry in sys.path]
