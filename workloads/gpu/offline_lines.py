"""What the processes of check-gpu-offline say to the command: one line of JSON each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from workloads.cpu.processes import end_group
from workloads.own_server import log_tail

Line = dict[str, Any]


class Failed(Exception):
    """A process of the check ended early; the message says why."""


def take_output() -> TextIO:
    """Keep standard output for these lines; what libraries print goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def say(out: TextIO, **values: object) -> None:
    """Send a line."""
    out.write(json.dumps(values) + "\n")
    out.flush()


def fail(out: TextIO, error: Exception) -> int:
    """Send the error, with its traceback in the log; the exit status."""
    traceback.print_exception(error)
    say(out, error=one_line(error))
    return 1


def one_line(error: Exception) -> str:
    """An error for a table or a message."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def lines_of(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> Generator[Line, None, None]:
    """Run ``python -m module`` and yield its lines as they come; its errors go to ``log``.

    Raises `Failed` with what it said, or with the log's end, where it does not end well. However
    this ends, closed early too, the process has ended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            for text in process.stdout:
                line: Line = json.loads(text)
                if "error" in line:
                    raise Failed(f"{line['error']} (more in {log})")
                yield line
            if (status := process.wait()) != 0:
                raise Failed(
                    f"{module} ended with status {status}; the end of {log}:\n{log_tail(log)}"
                )
        finally:
            end_group(process)
