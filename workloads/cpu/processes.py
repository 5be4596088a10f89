"""Processes of a benchmark: their memory and processor time, and one that keeps a core busy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workloads.own_server import peak_memory_bytes, stop

# Longer than any measurement that it is to disturb; then it ends even if nobody ends it.
BUSY_LIMIT_S = 300
_SPIN = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\n"
_SPIN += "while time.monotonic() < end:\n    pass\n"


def tree_of(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def tree_peak_memory_bytes(pid: int) -> int:
    """The sum of the most resident memory that each process of a tree has had (VmHWM).

    Pages that several of them share count several times.
    """
    return sum(peak_memory_bytes(each) or 0 for each in tree_of(pid))


def tree_cpu_s(pid: int) -> float:
    """Processor seconds that a tree of processes has used."""
    ticks = 0
    for each in tree_of(pid):
        fields = _stat(each)
        ticks += int(fields[11]) + int(fields[12]) if fields else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, parent, ...; None where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


@contextmanager
def busy_core(wanted: bool = True) -> Iterator[int | None]:
    """Within the block a process of ours computes without a pause, wherever the system puts it."""
    if not wanted:
        yield None
        return
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", _SPIN, str(BUSY_LIMIT_S)],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process.pid
    finally:
        stop(process)


def end_session(process_id: int) -> None:
    """End what is left of a session that a process of ours was started to lead."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields is not None and int(fields[3]) == process_id and fields[0] != "Z":
                with suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started in a session of its own, and what it left behind there."""
    try:
        stop(process)
    finally:
        end_session(process.pid)
