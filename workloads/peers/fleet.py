"""Servers that stay loaded while they take turns."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from workloads.agents.targets import Target
from workloads.cpu.processes import end_session, tree_cpu_s
from workloads.own_server import RunningServer, free_port, own_server


@dataclass(frozen=True, slots=True)
class Started:
    """How a server is started on a port: its command line and its environment."""

    command: Sequence[str]
    environment: Mapping[str, str]


Start = Callable[[str, int], Started]


class Fleet:
    """Starts the servers of targets without a URL, one after the other, and keeps them.

    ``idle_share`` is the share of a core that those used whose turn it was not.
    """

    def __init__(self, targets: Sequence[Target], start: Start, folder: Path) -> None:
        self._start, self._folder = start, folder
        self._targets = [target for target in targets if target.url is None]
        self._servers: dict[str, RunningServer] = {}
        self._stack = ExitStack()
        self._idle_cpu_s = self._wall_s = 0.0

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start_all(self) -> None:
        """Start every server that is not running yet. Raises ServerFailed."""
        for target in self._targets:
            if target.name in self._servers:
                continue
            port = free_port()
            log = self._folder / f"bench-peers-{target.name}.log"
            print(f"starting {target.name} (log: {log})", file=sys.stderr, flush=True)
            how = self._start(target.name, port)
            server = self._stack.enter_context(_served(how, port, log))
            self._servers[target.name] = server

    @contextmanager
    def turn(self, target: Target) -> Iterator[RunningServer]:
        """The server whose turn it is."""
        self.start_all()
        if target.url is not None:
            yield RunningServer(target.url)
            return
        others = [each.pid for name, each in self._servers.items() if name != target.name]
        before, begin = _cpu_s(others), time.perf_counter()
        yield self._servers[target.name]
        self._idle_cpu_s += _cpu_s(others) - before
        self._wall_s += time.perf_counter() - begin

    @property
    def idle_share(self) -> float:
        """Processor time of waiting servers over the time that they waited."""
        return self._idle_cpu_s / self._wall_s if self._wall_s else 0.0


@contextmanager
def _served(how: Started, port: int, log: Path) -> Iterator[RunningServer]:
    pid = None
    try:
        with own_server(how.command, port, log, environment=how.environment) as server:
            pid = server.pid
            yield server
    finally:
        # Other engines leave processes behind that they started.
        if pid is not None:
            end_session(pid)


def _cpu_s(pids: Sequence[int | None]) -> float:
    return sum(tree_cpu_s(pid) for pid in pids if pid is not None)
