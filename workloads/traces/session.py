"""Sessions of calls, and the rule by which a session's history grows.

A session is known before it is replayed, except for replies that are the engine's own. Every call
appends messages to the history; after it the history is the prompt and the reply, either the one
forced by the call or, where the call forces none, what the engine answered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

KNOWN_ROLES = frozenset({"system", "user", "assistant"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat, with a role that any chat template knows."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call to the engine.

    ``messages`` are appended to the history, or are all of it where ``reset`` is set. ``reply`` is
    forced into the history whatever was generated; None keeps the engine's own. ``raw`` sends the
    history's contents, joined, as a completion prompt without a chat template. ``think_s`` is the
    time in seconds between the reply before and this call.
    """

    messages: tuple[Message, ...]
    reply: str | None = None
    reset: bool = False
    raw: bool = False
    think_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Session:
    """One agent's or user's calls in order; it starts ``arrival_s`` seconds into the replay.

    ``timed``: these times, and its calls' ``think_s``, were recorded.
    """

    id: str
    calls: tuple[Call, ...]
    arrival_s: float = 0.0
    timed: bool = False


History = tuple[Message, ...]


def prompt_of(history: History, call: Call) -> History:
    """What is sent for a call after this history."""
    return call.messages if call.reset else history + call.messages


def after_reply(prompt: History, call: Call, own_reply: str) -> History:
    """The history after a call that the engine answered with ``own_reply``."""
    reply = own_reply if call.reply is None else call.reply
    return (*prompt, Message("assistant", reply))


def raw_text(prompt: History) -> str:
    """The completion prompt of a raw call: the contents one after the other, nothing between."""
    return "".join(message.content for message in prompt)


def prompt_digest(prompt: History, raw: bool) -> str:
    """A short fingerprint of a prompt, to show that two runs sent the same one."""
    body = json.dumps([raw, [[m.role, m.content] for m in prompt]], ensure_ascii=False)
    return hashlib.blake2b(body.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def with_replies(
    sessions: Iterable[Session], replies: Mapping[tuple[str, int], str]
) -> tuple[Session, ...]:
    """The same sessions with the recorded own replies forced, keyed by (session id, call index).

    A call that already forces a reply keeps it, and one that has none recorded (it was never
    answered) stays as it is, so a replay of the result sends exactly the prompts of the first run.
    """

    def forced(session: Session) -> Session:
        calls = (
            call
            if call.reply is not None
            else replace(call, reply=replies.get((session.id, index)))
            for index, call in enumerate(session.calls)
        )
        return replace(session, calls=tuple(calls))

    return tuple(forced(session) for session in sessions)


def neutral_message(role: str, content: str) -> Message:
    """A message with a role that any chat template knows.

    Roles besides system, user and assistant become a user message under a heading that names them,
    since many templates refuse or drop a role they were not written for.
    """
    if role in KNOWN_ROLES:
        return Message(role, content)
    heading = f"{role.capitalize()} result" if role in {"tool", "function"} else f"From {role}"
    return Message("user", f"{heading}:\n{content}")
