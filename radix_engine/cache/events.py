"""What happened to the stored prefixes, in order, so that others can know them.

A cache with events tells an ``EventHub`` about every block it stores or gives up; a router, or any
other process, reads an ``EventStream`` and keeps a ``TreeMirror`` up to date. Whoever comes late or
was too slow takes a snapshot and goes on from there.

A stream has a scope. An operator's sees everything. A tenant's sees that tenant's namespaces, that
of nobody in particular only those without a salt, which is somebody's secret. It has sequence
numbers of its own, so that not even gaps tell of others; block ids are left out of it, since their
jumps would tell how much others store.

A stream has an identity, which no other has: sequence numbers go on only within it. After a
restart, or after the last subscriber has left, the next stream of a scope is another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from threading import Lock
from typing import Final
from uuid import uuid4

from radix_engine.cache.namespace import Namespace


@dataclass(frozen=True, slots=True)
class Stored:
    """Computed blocks can be found from now on.

    ``parent``: the hash that the first of them follows (32 bytes). ``run``: their token ids, int32
    in the machine's order. ``blocks``: their ids, one each; empty in a tenant's stream. ``hashes``:
    joined, one each. ``sequence`` is 0 in a snapshot. ``stream``: the identity of the stream that
    tells of it.
    """

    sequence: int
    namespace: Namespace
    parent: bytes = field(repr=False)
    run: bytes = field(repr=False)
    blocks: tuple[int, ...]
    hashes: bytes = field(repr=False)
    stream: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Removed:
    """These blocks can be found no more."""

    sequence: int
    namespace: Namespace
    hashes: bytes = field(repr=False)
    stream: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Cleared:
    """Everything is gone."""

    sequence: int
    stream: str = field(kw_only=True)


Event = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is stored, parents first, after the event numbered ``sequence`` of ``stream``."""

    sequence: int
    stored: list[Stored]
    stream: str = field(kw_only=True)


class Everything(Enum):
    """The type of ``ALL``: a value of its own, since None and any text may be a tenant."""

    ALL = "everything"


ALL: Final = Everything.ALL
"""The scope of an operator's stream."""


class EventsLost(RuntimeError):
    """What was asked for cannot be had: take a snapshot and go on after it.

    ``first_kept``: the first sequence number still kept, or the next one where none is.
    """

    def __init__(self, message: str, first_kept: int) -> None:
        super().__init__(message)
        self.first_kept = first_kept


def random_identity() -> str:
    """An identity that no stream had before."""
    return uuid4().hex


class EventStream:
    """The last ``capacity`` events of one scope, numbered from 1. Can be read from any thread.

    ``identity``: a text that no other stream has. ``ended``: nobody subscribes to it any more, and
    it is told nothing more.
    """

    __slots__ = ("_events", "_lock", "_next", "ended", "identity", "scope")

    def __init__(
        self, scope: str | Everything | None, capacity: int, identity: str | None = None
    ) -> None:
        self.scope = scope
        self.identity = random_identity() if identity is None else identity
        self.ended = False
        self._events: deque[Event] = deque(maxlen=capacity)
        self._next = 1
        self._lock = Lock()

    @property
    def next_sequence(self) -> int:
        """The number that the next event will have."""
        return self._next

    def covers(self, namespace: Namespace) -> bool:
        """Whether this stream tells of that namespace."""
        return isinstance(self.scope, Everything) or namespace.is_told_to(self.scope)

    def since(self, sequence: int, identity: str | None = None) -> list[Event]:
        """The event numbered ``sequence`` and all later ones; none when it is the next number.

        ``identity``: of the stream that the number is from; None where nothing was read before.
        Raises EventsLost when some of the events have been dropped, when the number is of another
        stream (that of an earlier run of the server, say), or when this one has ended. Cost:
        O(events returned).
        """
        if sequence < 1:
            raise ValueError(f"sequence numbers start at 1; {sequence} was asked for")
        if identity is not None and identity != self.identity:
            raise EventsLost(
                f"event {sequence} of stream {identity} was asked for, but this is stream "
                f"{self.identity}: take a snapshot and go on after it",
                self._next - len(self._events),
            )
        if self.ended:
            raise EventsLost(
                "this stream has ended: subscribe again, take a snapshot and go on after it",
                self._next,
            )
        with self._lock:
            following = self._next
            first = following - len(self._events)
            wanted = following - sequence
            events = list(islice(reversed(self._events), max(wanted, 0)))
        if sequence < first:
            raise EventsLost(
                f"event {sequence} is no longer kept, the first that is has number {first}: "
                "take a snapshot and go on after it",
                first,
            )
        if wanted < 0:
            raise EventsLost(
                f"event {sequence} was asked for, but this stream's next has number {following}: "
                "the number is not from this stream; take a snapshot and go on after it",
                first,
            )
        events.reverse()
        return events

    def stored(
        self, namespace: Namespace, parent: bytes, run: bytes, blocks: Sequence[int], hashes: bytes
    ) -> None:
        """Append a Stored event. Like the next two, for the hub alone."""
        told = tuple(blocks) if self.scope is ALL else ()
        with self._lock:
            self._events.append(
                Stored(self._next, namespace, parent, run, told, hashes, stream=self.identity)
            )
            self._next += 1

    def removed(self, namespace: Namespace, hashes: bytes) -> None:
        """Append a Removed event."""
        with self._lock:
            self._events.append(Removed(self._next, namespace, hashes, stream=self.identity))
            self._next += 1

    def cleared(self) -> None:
        """Append a Cleared event."""
        with self._lock:
            self._events.append(Cleared(self._next, stream=self.identity))
            self._next += 1

    def end(self) -> None:
        """Forget the events. For the hub alone, too."""
        with self._lock:
            self.ended = True
            self._events.clear()
