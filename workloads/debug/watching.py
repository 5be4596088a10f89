"""Somebody who looks into the server: at the tree now and then, or with the page open."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

from workloads.http.wire import Connection

STREAMS = 4
_TOKENS = 1_000_000
_PAUSE_S = 0.5  # between two looks at the tree


@dataclass(slots=True)
class Window:
    """A time in which somebody looked, or nobody. ``trees``: seconds and bytes of each answer of
    /debug/tree; ``updates``: bytes of each update of /debug/events."""

    who: str
    start: float
    end: float = 0.0
    trees: list[tuple[float, int]] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)


async def run_streams(port: int) -> list[asyncio.Task[None]]:
    """Answers that go on and on, so that steps follow each other; once all bring tokens."""
    begun = [asyncio.Event() for _ in range(STREAMS)]
    tasks = [asyncio.create_task(_stream(port, each, event)) for each, event in enumerate(begun)]
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in begun)), 60)
    return tasks


async def window(port: int, who: str, seconds: float) -> Window:
    """``who``: nobody, tree (looks at /debug/tree twice a second) or page (listens to
    /debug/events)."""
    found = Window(who, time.perf_counter())
    watcher = {"tree": _look, "page": _listen}.get(who)
    if watcher is None:
        await asyncio.sleep(seconds)
    else:
        task = asyncio.create_task(watcher(port, found))
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    found.end = time.perf_counter()
    return found


async def tree_answers(port: int, query: str, times: int) -> list[tuple[float, int]]:
    """Seconds and bytes of some answers of /debug/tree."""
    found = []
    connection = await Connection.open(port)
    for _ in range(times):
        start = time.perf_counter()
        await connection.send("GET", f"/debug/tree{query}")
        size = len(await connection.body())
        found.append((time.perf_counter() - start, size))
        await asyncio.sleep(_PAUSE_S / 2)
    connection.close()
    return found


async def _stream(port: int, number: int, begun: asyncio.Event) -> None:
    connection = await Connection.open(port)
    body = {
        "prompt": f"stream {number}",
        "max_tokens": _TOKENS // 2,
        "ignore_eos": True,
        "stream": True,
    }
    await connection.send("POST", "/v1/completions", json.dumps(body).encode())
    await connection.head()
    async for _ in connection.times():
        begun.set()


async def _look(port: int, found: Window) -> None:
    while True:
        found.trees += await tree_answers(port, "", 1)
        await asyncio.sleep(_PAUSE_S / 2)


async def _listen(port: int, found: Window) -> None:
    connection = await Connection.open(port)
    try:
        await connection.send("GET", "/debug/events")
        await connection.head()
        size = 0
        async for piece in connection.pieces():
            size += len(piece)
            if piece.endswith(b"\n\n\r\n"):
                found.updates.append(size)
                size = 0
    finally:
        connection.close()
