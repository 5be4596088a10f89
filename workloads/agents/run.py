"""One measured run: a replay against a server, its counters before and after, its memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never

import httpx
from tqdm import tqdm

from workloads.agents.client import CallFailed, new_client, stream_call
from workloads.agents.journal import Journal, Kept, Leg
from workloads.agents.measures import Summary, counter_differences, summarise, token_sums
from workloads.agents.probe import empty_cache, model_name, told_info
from workloads.agents.replay import Ended, Progress, Record, Replay, replay
from workloads.agents.targets import Target
from workloads.cpu.processes import tree_peak_memory_bytes
from workloads.own_server import RunningServer
from workloads.traces.session import Message, Session

_WARM_UP = (Message("user", "One, two, three,"),)


@dataclass(frozen=True, slots=True)
class How:
    """How a replay is made.

    ``warm_up`` sends one short unrelated prompt first, which pays for what only a process's first
    request pays; ``empty`` then empties the prefix cache. ``refusals``: a server that is too busy
    ends a session, not the replay.
    """

    max_tokens: int
    concurrency: int
    warm_up: bool
    empty: bool
    refusals: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """What one leg measured. What the server does not tell is None.

    ``emptied`` says whether the prefix cache was emptied before the first call; None: it was to be,
    and the server has no path for it or does not allow it. ``differences`` is None where the
    counters could not be compared.
    """

    leg: Leg
    prefix_cache: bool | None
    emptied: bool | None
    replay: Replay
    summary: Summary
    differences: tuple[str, ...] | None
    peak_memory_bytes: int | None
    server: Mapping[str, Any]
    start_s: float | None

    @property
    def label(self) -> str:
        """The target's name."""
        return self.leg.target

    @property
    def resumed_after(self) -> tuple[int, ...]:
        """How many calls were answered each time that the replay was resumed."""
        parts = [record.part for record in self.replay.records]
        return tuple(sum(part < n for part in parts) for n in range(1, max(parts, default=0) + 1))


def run_of(leg: Leg, kept: Kept) -> Run:
    """The run of a leg that a journal holds to its end."""
    facts = dict(kept.finished or {})
    del facts["wall_s"]
    differences = facts.pop("differences")
    return Run(
        leg=leg,
        replay=kept.replay,
        summary=summarise(kept.records),
        differences=None if differences is None else tuple(differences),
        **facts,
    )


async def measured_run(
    server: RunningServer,
    target: Target,
    leg: Leg,
    sessions: Sequence[Session],
    how: How,
    journal: Journal,
) -> Run:
    """Replay the sessions against a server, from where the journal ends, and gather all that is
    reported of the run.

    Raises CallFailed where not even the first questions are answered; a call that fails later ends
    the replay and is in ``Run.replay.failure``.
    """
    kept = journal.kept(leg)
    before = kept.replay
    async with new_client(server.url, target.key) as client:
        model = target.model or await model_name(client)
        if how.warm_up:
            await stream_call(client, _WARM_UP, raw=True, max_tokens=4, model=model)
        emptied: bool | None = False
        if kept.began is not None and kept.records:
            # What it still holds of the sessions is part of what goes on.
            emptied = kept.began["emptied"]
        elif how.empty:
            emptied = await empty_cache(client) or None
        first = await told_info(client)
        journal.began(leg, {"emptied": emptied})
        with _Bar(sessions, before, _title(leg)) as bar:
            done = await replay(
                client,
                sessions,
                max_tokens=how.max_tokens,
                concurrency=how.concurrency,
                progress=_noted(journal, leg, bar),
                model=model,
                refusals=how.refusals,
                before=before,
            )
        last = None if first is None else await _info_or_none(client)
    told = first or {}
    run = Run(
        leg=leg,
        prefix_cache=None if first is None else bool(first.get("prefix_cache")),
        emptied=emptied,
        replay=done,
        summary=summarise(done.records),
        differences=_differences(first, last, before, done),
        peak_memory_bytes=_peak_memory(server, last),
        server={"model": model} | {key: told[key] for key in _TOLD if key in told},
        start_s=server.ready_s,
    )
    if done.failure is None:
        journal.finished(leg, _facts(run))
    return run


_TOLD = ("model", "kv", "context_length")


def _facts(run: Run) -> dict[str, object]:
    names = ("prefix_cache", "emptied", "differences", "peak_memory_bytes", "server", "start_s")
    return {"wall_s": run.replay.wall_s} | {name: getattr(run, name) for name in names}


def _differences(
    first: Mapping[str, Any] | None, last: Mapping[str, Any] | None, before: Replay, done: Replay
) -> tuple[str, ...] | None:
    """Counters against answers, over what was replayed since the counters were first read."""
    if first is None or last is None or done.failure is not None:
        return None
    new = done.records[len(before.records) :]
    return counter_differences(first["counters"], last["counters"], token_sums(new))


async def _info_or_none(client: httpx.AsyncClient) -> dict[str, Any] | None:
    try:
        return await told_info(client)
    except CallFailed:
        return None


def _peak_memory(server: RunningServer, info: dict[str, Any] | None) -> int | None:
    seen = tree_peak_memory_bytes(server.pid) if server.pid is not None else None
    told = ((info or {}).get("memory") or {}).get("peak_rss_bytes")
    return seen or told


def _title(leg: Leg) -> str:
    at_rate = "" if leg.rate is None else f" at {leg.rate:g}/s"
    return f"{leg.target}{at_rate}" + (f", round {leg.round + 1}" if leg.round else "")


def _noted(journal: Journal, leg: Leg, bar: _Bar) -> Progress:
    def call_done(record: Record) -> None:
        journal.call(leg, record)
        bar.call_done(record)

    def ended_early(ended: Ended) -> None:
        journal.ended(leg, ended)

    return Progress(call_done, ended_early, bar.session_done)


class _Bar:
    """A progress bar over calls, with sessions and tokens beside it, on standard error."""

    def __init__(self, sessions: Sequence[Session], before: Replay, title: str) -> None:
        self._sessions = len(sessions)
        self._ended = self._prompt = self._cached = 0
        self._bar: tqdm[Never] = tqdm(
            total=sum(len(session.calls) for session in sessions),
            initial=len(before.records) + sum(each.missed for each in before.ended),
            desc=title,
            unit="call",
            mininterval=0.2 if sys.stderr.isatty() else 10.0,
        )

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def call_done(self, record: Record) -> None:
        self._prompt += record.answer.prompt_tokens or 0
        self._cached += record.answer.cached_tokens or 0
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
