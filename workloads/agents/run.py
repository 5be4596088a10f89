"""One measured run: a replay against a server, its counters before and after, its memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Never

import httpx
from tqdm import tqdm

from workloads.agents.client import (
    CallFailed,
    flush_cache,
    new_client,
    settled_info,
    stream_call,
)
from workloads.agents.measures import Summary, counter_differences, summarise
from workloads.agents.replay import Progress, Record, Replay, replay
from workloads.own_server import RunningServer, peak_memory_bytes
from workloads.traces.session import Message, Session

_WARM_UP = (Message("user", "One, two, three,"),)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run measured. ``differences`` is None where the counters could not be compared.

    ``flushed`` says whether the prefix cache was emptied before the first call.
    """

    prefix_cache: bool
    flushed: bool
    replay: Replay
    summary: Summary
    differences: tuple[str, ...] | None
    peak_memory_bytes: int | None
    server: dict[str, Any]
    start_s: float | None

    @property
    def label(self) -> str:
        """``on`` or ``off``."""
        return "on" if self.prefix_cache else "off"


async def measured_run(
    server: RunningServer,
    sessions: Sequence[Session],
    *,
    max_tokens: int,
    concurrency: int,
    warm_up: bool,
    flush: bool,
) -> Run:
    """Replay the sessions against a server and gather all that is reported of the run.

    ``warm_up`` sends one short unrelated prompt first, which pays for what only a process's first
    request pays; ``flush`` then empties the prefix cache. Raises CallFailed where even that does
    not work; a call that fails later ends the replay and is in ``Run.replay.failure``.
    """
    async with new_client(server.url) as client:
        if warm_up:
            await stream_call(client, _WARM_UP, raw=True, max_tokens=4)
        if flush:
            await flush_cache(client)
        before = await settled_info(client)
        label = "on" if before.get("prefix_cache") else "off"
        with _Bar(sessions, f"cache {label}") as bar:
            done = await replay(
                client,
                sessions,
                max_tokens=max_tokens,
                concurrency=concurrency,
                progress=Progress(bar.call_done, bar.session_done),
            )
        after = await _info_or_none(client)
    summary = summarise(done.records)
    differences = None
    if after is not None and done.failure is None:
        differences = counter_differences(before["counters"], after["counters"], summary.tokens)
    return Run(
        prefix_cache=bool(before.get("prefix_cache")),
        flushed=flush,
        replay=done,
        summary=summary,
        differences=differences,
        peak_memory_bytes=_peak_memory(server, after),
        server={key: before.get(key) for key in ("model", "kv", "context_length")},
        start_s=server.ready_s,
    )


async def _info_or_none(client: httpx.AsyncClient) -> dict[str, Any] | None:
    try:
        return await settled_info(client)
    except CallFailed:
        return None


def _peak_memory(server: RunningServer, info: dict[str, Any] | None) -> int | None:
    seen = peak_memory_bytes(server.pid) if server.pid is not None else None
    told = ((info or {}).get("memory") or {}).get("peak_rss_bytes")
    return seen if seen is not None else told


class _Bar:
    """A progress bar over calls, with sessions and tokens beside it, on standard error."""

    def __init__(self, sessions: Sequence[Session], title: str) -> None:
        self._sessions = len(sessions)
        self._ended = self._prompt = self._cached = 0
        self._bar: tqdm[Never] = tqdm(
            total=sum(len(session.calls) for session in sessions),
            desc=title,
            unit="call",
            mininterval=0.2 if sys.stderr.isatty() else 10.0,
        )

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def call_done(self, record: Record) -> None:
        self._prompt += record.answer.prompt_tokens
        self._cached += record.answer.cached_tokens
        self._show()
        self._bar.update()

    def session_done(self, calls_not_made: int) -> None:
        self._ended += 1
        self._show()
        self._bar.update(calls_not_made)

    def _show(self) -> None:
        self._bar.set_postfix_str(
            f"sessions {self._ended}/{self._sessions}, prompt tokens {self._prompt:,}, "
            f"cached {self._cached:,}",
            refresh=False,
        )
