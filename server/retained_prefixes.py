"""What requests have asked to keep in the cache, by prefix: each is retained once, however often it
is named, and can be listed and let go."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from radix_engine.cache import (
    ALL,
    Everything,
    Namespace,
    PrefixCache,
    Retention,
    RetentionRefused,
)
from server.generation_params import Retain
from server.outputs import Retained

_TOKEN_BYTES = 4
# Ended ones are forgotten once they are more than those that hold, and than this.
_MOST_ENDED = 64

_Key = tuple[Namespace, bytes]


@dataclass(frozen=True, slots=True)
class RetainedPrefix:
    """A prefix that is kept: ``tokens`` of it (fewer than were asked for where eviction had to take
    some), for ``seconds_left`` if nobody reads it. ``salted``: it is under a salt."""

    id: str
    tenant: str | None
    salted: bool
    tokens: int
    seconds_left: float
    name: str | None
    session: str | None


@dataclass(slots=True, eq=False)
class _Entry:
    id: str
    key: _Key
    retention: Retention
    name: str | None
    session: str | None


class RetainedPrefixes:
    """On the engine's thread."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._entries: dict[str, _Entry] = {}  # by id
        self._by_key: dict[_Key, _Entry] = {}
        self._by_number: dict[int, _Entry] = {}

    def retain(
        self, run: bytes, namespace: Namespace, retains: Iterable[Retain], session: str | None
    ) -> Retained:
        """Retain prefixes of a prompt that is stored; what of it is retained now.

        Cost for each: its tokens. What the session's former requests have retained on the way to
        the longest of them, and not for longer, is let go: it is kept all the same.
        """
        named: list[_Entry] = []
        refused: str | None = None
        for each in sorted(retains, key=lambda retain: retain.tokens):
            entry, reason = self._retain_one(run, namespace, each, session)
            refused = refused or reason
            if entry is not None:
                named.append(entry)
        self._forget_ended()
        if not named:
            return Retained(0, refused)
        longest = max(named, key=lambda entry: entry.retention.num_tokens)
        self._let_go_within(longest, named)
        return Retained(longest.retention.num_tokens, refused, longest.id)

    def listed(self, scope: str | Everything | None) -> list[RetainedPrefix]:
        """What a tenant may know of, or all."""
        return [_view(entry, left) for entry, left in self._holding(scope)]

    def release(self, scope: str | Everything | None, prefix_id: str | None = None) -> int:
        """Let one go, or all that a tenant may know of; how many."""
        chosen = [
            entry for entry, _ in self._holding(scope) if prefix_id is None or entry.id == prefix_id
        ]
        for entry in chosen:
            self._let_go(entry)
        return len(chosen)

    def _retain_one(
        self, run: bytes, namespace: Namespace, asked: Retain, session: str | None
    ) -> tuple[_Entry | None, str | None]:
        """The prefix that is retained, if any is, and a word for why not all of it."""
        size, reason = self._cache.block_size, None
        tokens = min(asked.tokens, len(run) // _TOKEN_BYTES) // size * size
        if not tokens:
            return None, "short"
        prefix = run[: tokens * _TOKEN_BYTES]
        key = (namespace, sha256(prefix).digest())
        entry = self._by_key.get(key)
        if entry is not None and entry.retention.ended:
            self._let_go(entry)
            entry = None
        if entry is None or entry.retention.num_tokens < tokens:  # eviction has taken some of it
            try:
                retention = self._cache.retain(prefix, asked.seconds, namespace)
            except RetentionRefused as refusal:
                reason = refusal.reason
            else:
                entry = self._put(key, retention, entry)
                reason = "not_stored" if retention.num_tokens < tokens else None
        if entry is None:
            return None, reason
        left = self._cache.retentions.seconds_left(entry.retention)
        if left is not None and left < asked.seconds:
            self._cache.refresh_retention(entry.retention, asked.seconds)
        entry.name = asked.name or entry.name
        entry.session = session or entry.session
        return entry, reason

    def _put(self, key: _Key, retention: Retention, before: _Entry | None) -> _Entry:
        """An entry for a retention, in place of the one before it, if there was one."""
        entry = _Entry(f"ret-{secrets.token_hex(8)}", key, retention, None, None)
        if before is not None:
            self._let_go(before)
            entry.id, entry.name, entry.session = before.id, before.name, before.session
        self._entries[entry.id] = self._by_key[key] = entry
        self._by_number[retention.number] = entry
        return entry

    def _let_go_within(self, longest: _Entry, named: list[_Entry]) -> None:
        left = self._cache.retentions.seconds_left(longest.retention)
        for other in self._cache.retentions.within(longest.retention):
            entry = self._by_number.get(other.number)
            if entry is None or entry in named or entry.name is not None:
                continue
            if entry.session != longest.session or entry.key[0] != longest.key[0]:
                continue
            its = self._cache.retentions.seconds_left(other)
            if left is None or (its is not None and its <= left):
                self._let_go(entry)

    def _holding(self, scope: str | Everything | None) -> list[tuple[_Entry, float]]:
        """Those of a scope that have not ended, and the seconds that they have left."""
        self._forget_ended(at_once=True)
        found = []
        for entry in self._entries.values():
            namespace = entry.key[0]
            left = self._cache.retentions.seconds_left(entry.retention)
            if left and (scope is ALL or namespace.is_told_to(scope)):
                found.append((entry, left))
        return found

    def _let_go(self, entry: _Entry) -> None:
        self._cache.release_retention(entry.retention)
        del self._entries[entry.id], self._by_key[entry.key]
        del self._by_number[entry.retention.number]

    def _forget_ended(self, *, at_once: bool = False) -> None:
        holding = len(self._cache.retentions)
        if at_once or len(self._entries) > 2 * holding + _MOST_ENDED:
            for entry in [each for each in self._entries.values() if each.retention.ended]:
                self._let_go(entry)


def _view(entry: _Entry, seconds_left: float) -> RetainedPrefix:
    namespace = entry.key[0]
    return RetainedPrefix(
        entry.id,
        namespace.tenant,
        namespace.salt is not None,
        entry.retention.num_tokens,
        seconds_left,
        entry.name,
        entry.session,
    )
