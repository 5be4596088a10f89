"""Looks at the server while the storm goes on: its memory, and how soon it answers a probe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx
import numpy as np

from workloads.agents.client import CallFailed, server_info

_EVERY_S = 0.5
WARM_UP_SHARE = 1 / 3
"""Of the run, at its beginning: what grows then are caches that fill for the first time."""


@dataclass(slots=True)
class Watched:
    """``seconds`` since the beginning, and resident memory (bytes) then; how long a probe took."""

    seconds: list[float] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)
    probes_s: list[float] = field(default_factory=list)


async def watch(client: httpx.AsyncClient, watched: Watched, tell: Callable[[], None]) -> None:
    """Look twice a second until cancelled; ``tell`` is called each time."""
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        try:
            (await client.get("/health", timeout=60.0)).raise_for_status()
            watched.probes_s.append(time.monotonic() - asked)
            rss = (await server_info(client))["memory"]["rss_bytes"]
        except (httpx.HTTPError, CallFailed):
            rss = None  # the clients meet with the same, and tell it
        if rss is not None:
            watched.seconds.append(asked - began)
            watched.rss_bytes.append(rss)
        tell()
        await asyncio.sleep(_EVERY_S)


def growth_per_minute(seconds: Sequence[float], rss_bytes: Sequence[int]) -> float | None:
    """MiB a minute that memory grew by after the warm-up: the slope of the best line. None for less
    than three looks."""
    if not seconds:
        return None
    begin = seconds[0] + WARM_UP_SHARE * (seconds[-1] - seconds[0])
    late = [
        (at / 60, rss / 2**20) for at, rss in zip(seconds, rss_bytes, strict=True) if at >= begin
    ]
    if len(late) < 3:
        return None
    minutes, mebibytes = zip(*late, strict=True)
    return float(np.polynomial.Polynomial.fit(minutes, mebibytes, 1).convert().coef[1])
