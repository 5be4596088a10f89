"""Clients that each send the next request as soon as they have the answer to the last."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from workloads.agents.text import TASKS
from workloads.http.wire import Connection

PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Timing:
    """What came of one load: requests a second, and the time of each from sending its first byte to
    reading its last (ms)."""

    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float


def chat_body(*, stream: bool) -> bytes:
    """A conversation of about 4 kB, as an agent's first call has it."""
    random = Random(3)
    system = " ".join(random.choices(TASKS, k=24))
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": random.choice(TASKS)},
    ]
    return json.dumps({"messages": messages, "max_tokens": 64, "stream": stream}).encode()


async def closed_load(port: int, body: bytes, clients: int, seconds: float, stream: bool) -> Timing:
    """Have so many clients ask for so long, after each has asked once untimed."""
    connections = await asyncio.gather(*(Connection.open(port) for _ in range(clients)))
    try:
        await asyncio.gather(*(_ask(each, body, stream) for each in connections))
        began = time.perf_counter()
        until = began + seconds
        times = await asyncio.gather(*(_client(each, body, stream, until) for each in connections))
        wall = time.perf_counter() - began
    finally:
        for each in connections:
            each.close()
    return timing([time for client in times for time in client], wall)


def timing(times: Sequence[float], wall_s: float) -> Timing:
    """Of the times of all requests in seconds, done within ``wall_s``."""
    p50, p99 = (1e3 * float(value) for value in np.percentile(times, [50, 99]))
    return Timing(len(times), len(times) / wall_s, p50, p99)


async def _client(connection: Connection, body: bytes, stream: bool, until: float) -> list[float]:
    times = []
    while (sent := time.perf_counter()) < until:
        await _ask(connection, body, stream)
        times.append(time.perf_counter() - sent)
    return times


async def _ask(connection: Connection, body: bytes, stream: bool) -> None:
    await connection.send("POST", PATH, body)
    await (connection.whole_stream() if stream else connection.body())
