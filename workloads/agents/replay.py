"""Replays sessions against a server, several at a time, and records every call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from workloads.agents.client import Answer, CallFailed, PromptTooLong, stream_call
from workloads.traces.session import Call, History, Session, after_reply, prompt_digest, prompt_of


@dataclass(frozen=True, slots=True)
class Record:
    """One answered call. ``turn`` counts a session's calls from 1; ``sent_s`` from the start."""

    session: str
    turn: int
    sent_s: float
    prompt_digest: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay gave. ``too_long`` names sessions ended by a prompt that does not fit.

    ``failure`` is None, or why the replay ended early; ``records`` then holds what was answered.
    """

    records: tuple[Record, ...]
    too_long: tuple[str, ...]
    wall_s: float
    failure: str | None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a replay reports as it goes on: each answered call, each session's end."""

    call_done: Callable[[Record], None] = lambda record: None
    session_done: Callable[[int], None] = lambda calls_not_made: None


async def replay(
    client: httpx.AsyncClient,
    sessions: Sequence[Session],
    *,
    max_tokens: int,
    concurrency: int,
    progress: Progress,
) -> Replay:
    """Run the sessions, at most ``concurrency`` in flight, each from its arrival on.

    A session's calls follow one another: it is a closed loop. The first call that fails ends the
    whole replay; a prompt that does not fit ends only its session.
    """
    records: list[Record] = []
    too_long: list[str] = []
    slots = asyncio.Semaphore(concurrency)
    start = time.perf_counter()

    async def run(session: Session) -> None:
        await asyncio.sleep(max(0.0, start + session.arrival_s - time.perf_counter()))
        async with slots:
            history: History = ()
            for index, call in enumerate(session.calls):
                await asyncio.sleep(call.think_s)
                prompt = prompt_of(history, call)
                try:
                    record = await _answered(client, session.id, index + 1, call, prompt)
                except PromptTooLong:
                    too_long.append(session.id)
                    progress.session_done(len(session.calls) - index)
                    return
                records.append(record)
                progress.call_done(record)
                history = after_reply(prompt, call, record.answer.text)
            progress.session_done(0)

    async def _answered(
        client: httpx.AsyncClient, name: str, turn: int, call: Call, prompt: History
    ) -> Record:
        sent_s = time.perf_counter() - start
        try:
            answer = await stream_call(client, prompt, call.raw, max_tokens)
        except CallFailed as error:
            raise CallFailed(f"session {name}, turn {turn}: {error}") from error
        return Record(name, turn, sent_s, prompt_digest(prompt, call.raw), answer)

    failure: str | None = None
    try:
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(run(session))
    except* CallFailed as failures:
        failure = str(failures.exceptions[0])
    return Replay(tuple(records), tuple(too_long), time.perf_counter() - start, failure)


def own_replies(records: Sequence[Record]) -> dict[tuple[str, int], str]:
    """The engine's replies by (session id, call index), to be forced in a second replay."""
    return {(record.session, record.turn - 1): record.answer.text for record in records}
