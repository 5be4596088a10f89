"""Which session a whole prompt goes on with, where a log has prompts and not what is new in them.

Nothing is held of a prompt but fingerprints of its beginnings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.traces.session import Message


@dataclass(frozen=True, slots=True)
class Place:
    """The session of a prompt. ``known``: how many of its messages that session's history has
    already (0: the prompt stands for itself). ``earlier_reply``: what the prompt says that the call
    before was answered, where its own row did not say the same."""

    session: str
    known: int = 0
    earlier_reply: str | None = None


@dataclass(frozen=True, slots=True)
class _End:
    """Where a session's latest prompt ends, and its reply behind it, if that was recorded."""

    length: int
    prompt: bytes
    replied: bytes | None


class OpenSessions:
    """Finds a prompt's session by name, or else as the one whose latest prompt it begins with: of
    several, the one that has most in common with it. Cost: a digest a message."""

    def __init__(self) -> None:
        self._ends: dict[str, _End] = {}
        # Of sessions without a name of their own; those that end alike, the latest last.
        self._by_end: dict[bytes, dict[str, None]] = {}
        self._unnamed = 0

    def place(self, name: str | None, prompt: Sequence[Message], reply: str | None) -> Place:
        """Where this prompt belongs; it is its session's latest from now on."""
        chain = _chain(prompt)
        found = None if name is not None else self._longest(chain)
        session = name or found or self._new_name()
        end = self._ends.get(session)
        place = Place(session) if end is None else _continued(session, end, chain, prompt)
        replied = None if reply is None else _digest(chain[-1], Message("assistant", reply))
        self._note(session, _End(len(prompt), chain[-1], replied), by_end=name is None)
        return place

    def _longest(self, chain: Sequence[bytes]) -> str | None:
        for digest in reversed(chain[:-1]):
            if digest in self._by_end:
                return next(reversed(self._by_end[digest]))
        return None

    def _note(self, session: str, end: _End, *, by_end: bool) -> None:
        if by_end:
            if session in self._ends:
                for digest in _digests(self._ends[session]):
                    self._by_end[digest].pop(session)
                    if not self._by_end[digest]:
                        del self._by_end[digest]
            for digest in _digests(end):
                self._by_end.setdefault(digest, {})[session] = None
        self._ends[session] = end

    def _new_name(self) -> str:
        self._unnamed += 1
        return f"session-{self._unnamed}"


def _continued(session: str, end: _End, chain: list[bytes], prompt: Sequence[Message]) -> Place:
    """A history grows by a reply and something new; a prompt of any other form stands for
    itself."""
    length = end.length
    if len(prompt) < length + 2 or chain[length - 1] != end.prompt:
        return Place(session)
    if prompt[length].role != "assistant":
        return Place(session)
    said = None if chain[length] == end.replied else prompt[length].content
    return Place(session, length + 1, said)


def _digests(end: _End) -> tuple[bytes, ...]:
    return (end.prompt,) if end.replied is None else (end.prompt, end.replied)


def _chain(prompt: Sequence[Message]) -> list[bytes]:
    digests, before = [], b""
    for message in prompt:
        before = _digest(before, message)
        digests.append(before)
    return digests


def _digest(before: bytes, message: Message) -> bytes:
    body = before + message.role.encode() + b"\0" + message.content.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(body, digest_size=16).digest()
