"""Streams and /health beside long prompts: the longest gaps, with and without them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from workloads.http.wire import Connection

STREAMS = 4
_PAUSE_S = 0.01  # between two looks at /health
_SETTLE_S = 0.5
_AFTER_S = 0.2  # what is done last may show a little later
_STREAM_TOKENS = 100_000


@dataclass(frozen=True, slots=True)
class Window:
    """What was seen in a time: the gaps between the pieces of streams, and how long /health took;
    milliseconds."""

    gaps: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)

    @property
    def longest_gap(self) -> float:
        return max(self.gaps)

    @property
    def longest_health(self) -> float:
        return max(self.health)


@dataclass(frozen=True, slots=True)
class Round:
    """``seconds``: from sending the prompts until the last of them waited to be computed; as long a
    time was looked at ``before``."""

    before: Window
    during: Window
    seconds: float

    @property
    def gap_added(self) -> float:
        """By how much the longest gap of any stream grew, in milliseconds."""
        return self.during.longest_gap - self.before.longest_gap


class Watch:
    """Streams that run, and somebody who looks at /health."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._window: Window | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._connections: list[Connection] = []

    async def start(self) -> None:
        """Open the streams and wait until all bring tokens."""
        begun = [asyncio.Event() for _ in range(STREAMS)]
        for index, event in enumerate(begun):
            self._tasks.append(asyncio.create_task(self._stream(index, event)))
        await asyncio.gather(*(event.wait() for event in begun))
        self._tasks.append(asyncio.create_task(self._health()))
        await asyncio.sleep(_SETTLE_S)

    def stop(self) -> None:
        """Hang up."""
        for task in self._tasks:
            task.cancel()
        for connection in self._connections:
            connection.close()

    def open_window(self) -> Window:
        """What is seen from now on goes there."""
        self._window = window = Window()
        return window

    def close_window(self) -> None:
        """Nothing more does. Raises what ended a stream, if one has ended."""
        self._window = None
        for task in self._tasks:
            if task.done():
                task.result()
                raise RuntimeError("a stream has ended before the measurement")

    async def _stream(self, index: int, begun: asyncio.Event) -> None:
        connection = await self._open()
        body = {
            "prompt": f"stream {index}",
            "max_tokens": _STREAM_TOKENS,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        await connection.send("POST", "/v1/completions", json.dumps(body).encode())
        await connection.head()
        last = time.perf_counter()
        async for now in connection.times():
            begun.set()
            if self._window is not None:
                self._window.gaps.append(1e3 * (now - last))
            last = now

    async def _health(self) -> None:
        connection = await self._open()
        while True:
            start = time.perf_counter()
            await connection.send("GET", "/health")
            await connection.body()
            if self._window is not None:
                self._window.health.append(1e3 * (time.perf_counter() - start))
            await asyncio.sleep(_PAUSE_S)

    async def _open(self) -> Connection:
        connection = await Connection.open(self._port)
        self._connections.append(connection)
        return connection


async def measure_round(
    watch: Watch, port: int, path: str, prompts: Sequence[bytes], before_s: float
) -> Round:
    """Look for ``before_s`` seconds, then send all prompts at once and look until all wait."""
    before = watch.open_window()
    await asyncio.sleep(before_s)
    watch.close_window()
    connections = [await Connection.open(port) for _ in prompts]
    during, start = watch.open_window(), time.perf_counter()
    try:
        await asyncio.gather(
            *(_wait_in_line(c, path, body) for c, body in zip(connections, prompts, strict=True))
        )
        seconds = time.perf_counter() - start
        await asyncio.sleep(_AFTER_S)
        watch.close_window()
    finally:
        for connection in connections:
            connection.close()
    await asyncio.sleep(_SETTLE_S)
    return Round(before, during, seconds)


async def _wait_in_line(connection: Connection, path: str, body: bytes) -> None:
    await connection.send("POST", path, body)
    await connection.head()
