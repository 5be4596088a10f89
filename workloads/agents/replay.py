"""Replays sessions against a server, several at a time, and records every call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx

from workloads.agents.client import Answer, CallFailed, PromptTooLong, Refused, stream_call
from workloads.traces.session import Call, History, Session, after_reply, prompt_digest, prompt_of


@dataclass(frozen=True, slots=True)
class Record:
    """One answered call. ``turn`` counts a session's calls from 1; ``sent_s`` from the start.

    ``part`` is 0, or how often the replay had been resumed by then.
    """

    session: str
    turn: int
    sent_s: float
    prompt_digest: str
    answer: Answer
    part: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A session that ended early at a turn that was not answered: a prompt that does not fit, or a
    server that refused it because it is too busy. ``missed`` turns were not made, that one among
    them."""

    session: str
    why: str
    missed: int


TOO_LONG, REFUSED = "too long", "refused"


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay gave. ``failure`` is None, or why the replay ended early.

    ``records`` holds what was answered, in order of the answers; ``ended`` the sessions that ended
    early while the others went on.
    """

    records: tuple[Record, ...] = ()
    ended: tuple[Ended, ...] = ()
    wall_s: float = 0.0
    failure: str | None = None

    @property
    def too_long(self) -> tuple[str, ...]:
        """Sessions ended by a prompt that does not fit."""
        return tuple(each.session for each in self.ended if each.why == TOO_LONG)

    @property
    def refused_turns(self) -> int:
        """Turns that were not answered because the server was too busy for their session."""
        return sum(each.missed for each in self.ended if each.why == REFUSED)

    @property
    def next_part(self) -> int:
        """The ``part`` of what a replay that goes on from here records."""
        return max((record.part for record in self.records), default=-1) + 1


@dataclass(frozen=True, slots=True)
class Progress:
    """What a replay reports as it goes on: each answered call, each session's early end, and each
    session's end with the calls that it did not make."""

    call_done: Callable[[Record], None] = lambda record: None
    ended_early: Callable[[Ended], None] = lambda ended: None
    session_done: Callable[[int], None] = lambda calls_not_made: None


async def replay(
    client: httpx.AsyncClient,
    sessions: Sequence[Session],
    *,
    max_tokens: int,
    concurrency: int,
    progress: Progress,
    model: str | None = None,
    refusals: bool = False,
    before: Replay | None = None,
) -> Replay:
    """Run the sessions, at most ``concurrency`` in flight, each from its arrival on.

    A session's calls follow one another: it is a closed loop. The first call that fails ends the
    whole replay; a prompt that does not fit ends only its session, and so does, where ``refusals``
    are allowed, a server that is too busy.

    ``before`` is what was answered before a replay was interrupted. The result holds it, too, and
    time goes on where it ended: sessions continue after the replies they have, at once, and those
    that had not begun arrive in the time that is left.
    """
    before = before or Replay()
    records, ended = list(before.records), list(before.ended)
    part = before.next_part
    closed = {each.session for each in before.ended}
    answered = {(record.session, record.turn): record.answer.text for record in before.records}
    slots = asyncio.Semaphore(concurrency)
    start = time.perf_counter() - before.wall_s

    async def run(session: Session) -> None:
        history, done = history_after(session, answered)
        if done == len(session.calls) or session.id in closed:
            return
        await asyncio.sleep(max(0.0, start + session.arrival_s - time.perf_counter()))
        async with slots:
            for index, call in enumerate(session.calls[done:], done):
                await asyncio.sleep(call.think_s)
                prompt = prompt_of(history, call)
                try:
                    record = await _answered(client, session.id, index + 1, call, prompt)
                except (PromptTooLong, Refused) as error:
                    why = REFUSED if isinstance(error, Refused) else TOO_LONG
                    missed = len(session.calls) - index
                    ended.append(Ended(session.id, why, missed))
                    progress.ended_early(ended[-1])
                    progress.session_done(missed)
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
            answer = await stream_call(client, prompt, call.raw, max_tokens, model)
        except CallFailed as error:
            if refusals and isinstance(error, Refused):
                raise
            raise CallFailed(f"session {name}, turn {turn}: {error}") from error
        return Record(name, turn, sent_s, prompt_digest(prompt, call.raw), answer, part)

    failure: str | None = None
    try:
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(run(session))
    except* CallFailed as failures:
        failure = str(failures.exceptions[0])
    return Replay(tuple(records), tuple(ended), time.perf_counter() - start, failure)


def history_after(session: Session, answered: Mapping[tuple[str, int], str]) -> tuple[History, int]:
    """A session's history after the turns that were answered, and how many those are.

    ``answered`` has the replies by (session id, turn).
    """
    history: History = ()
    for index, call in enumerate(session.calls):
        reply = answered.get((session.id, index + 1))
        if reply is None:
            return history, index
        history = after_reply(prompt_of(history, call), call, reply)
    return history, len(session.calls)


def own_replies(records: Sequence[Record]) -> dict[tuple[str, int], str]:
    """The engine's replies by (session id, call index), to be forced in a second replay."""
    return {(record.session, record.turn - 1): record.answer.text for record in records}
