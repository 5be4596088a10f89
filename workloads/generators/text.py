"""Planned sessions as text: sessions for a replay, and trace files in the delta-chat format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from workloads.generators.plan import Part, PlannedSession
from workloads.generators.words import made_up_text
from workloads.traces.session import Call, Message, Session


def text_sessions(sessions: Iterable[PlannedSession], seed: int) -> Iterator[Session]:
    """The sessions with their text, one by one. Parts of one role that follow one another are one
    message, since many chat templates want the roles to alternate."""
    for session in sessions:
        calls = tuple(
            Call(
                messages=_messages(call.parts, seed),
                reply=_text(call.reply, seed),
                reset=call.reset,
                think_s=call.think_s,
            )
            for call in session.calls
        )
        yield Session(session.id, calls, session.arrival_s, timed=True)


def delta_chat_lines(sessions: Iterable[Session]) -> Iterator[str]:
    """The lines of a trace file, each with its end. A call's time is that of a server whose replies
    take none."""
    for session in sessions:
        moment = session.arrival_s
        for turn, call in enumerate(session.calls):
            moment = round(moment + call.think_s, 3)
            row: dict[str, object] = {
                "session_id": session.id,
                "turn": turn,
                "t_arrival_s": moment,
                "messages": [{"role": m.role, "content": m.content} for m in call.messages],
                "output": call.reply,
            }
            if call.reset:
                row["reset"] = True
            yield json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def _messages(parts: Sequence[Part], seed: int) -> tuple[Message, ...]:
    messages: list[Message] = []
    for part in parts:
        text = _text(part, seed)
        if messages and messages[-1].role == part.role:
            messages[-1] = Message(part.role, f"{messages[-1].content}\n\n{text}")
        else:
            messages.append(Message(part.role, text))
    return tuple(messages)


def _text(part: Part, seed: int) -> str:
    return part.text if part.text is not None else made_up_text(seed, part.name, part.tokens)
