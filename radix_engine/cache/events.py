"""What happened to the stored prefixes, in order, so that others can know them.

A cache with events tells an ``EventHub`` about every block it stores or gives up; a router, or any
other process, reads an ``EventStream`` and keeps a ``TreeMirror`` up to date. Whoever comes late or
was too slow takes a snapshot and goes on from there.

A stream has a scope. An operator's sees everything. A tenant's sees that tenant's namespaces and
has sequence numbers of its own, so that not even gaps tell of others; block ids are left out of it,
since their jumps would tell how much others store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from threading import Lock
from typing import Final

from radix_engine.cache.block_hash import HASH_BYTES, block_hashes
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.token_run import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Stored:
    """Computed blocks can be found from now on.

    ``parent``: the hash that the first of them follows (32 bytes). ``run``: their token ids, int32
    in the machine's order. ``blocks``: their ids, one each; empty in a tenant's stream. ``hashes``:
    joined, one each. ``sequence`` is 0 in a snapshot.
    """

    sequence: int
    namespace: Namespace
    parent: bytes = field(repr=False)
    run: bytes = field(repr=False)
    blocks: tuple[int, ...]
    hashes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Removed:
    """These blocks can be found no more."""

    sequence: int
    namespace: Namespace
    hashes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Cleared:
    """Everything is gone."""

    sequence: int


Event = Stored | Removed | Cleared
Entry = tuple[Namespace, bytes, bytes, Sequence[int], bytes]
"""Namespace, parent hash, run, block ids and joined hashes of blocks that are stored."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is stored, parents first, after the event numbered ``sequence``."""

    sequence: int
    stored: list[Stored]


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


class EventStream:
    """The last ``capacity`` events of one scope, numbered from 1. Can be read from any thread."""

    __slots__ = ("_events", "_lock", "_next", "scope")

    def __init__(self, scope: str | Everything | None, capacity: int) -> None:
        self.scope = scope
        self._events: deque[Event] = deque(maxlen=capacity)
        self._next = 1
        self._lock = Lock()

    @property
    def next_sequence(self) -> int:
        """The number that the next event will have."""
        return self._next

    def covers(self, namespace: Namespace) -> bool:
        """Whether this stream tells of that namespace."""
        return self.scope is ALL or self.scope == namespace.tenant

    def since(self, sequence: int) -> list[Event]:
        """The event numbered ``sequence`` and all later ones; none when it is the next number.

        Raises EventsLost when some of them have been dropped, or when the number is further on than
        this stream is (it is of another stream, or of an earlier run of the server). Cost: O(events
        returned).
        """
        if sequence < 1:
            raise ValueError(f"sequence numbers start at 1; {sequence} was asked for")
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
            self._events.append(Stored(self._next, namespace, parent, run, told, hashes))
            self._next += 1

    def removed(self, namespace: Namespace, hashes: bytes) -> None:
        """Append a Removed event."""
        with self._lock:
            self._events.append(Removed(self._next, namespace, hashes))
            self._next += 1

    def cleared(self) -> None:
        """Append a Cleared event."""
        with self._lock:
            self._events.append(Cleared(self._next))
            self._next += 1


class EventHub:
    """Hashes what a cache stores and tells the streams of those who subscribed.

    The cache's thread calls ``stored``, ``removed`` and ``cleared``; any thread may subscribe.
    ``block_size`` is in tokens; each stream keeps ``capacity`` events, some 150 bytes each. Runs
    and hashes are held once for all streams, 96 bytes a block of 16 tokens.
    """

    def __init__(self, block_size: int, capacity: int = 65536) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1 token, not {block_size}")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 event, not {capacity}")
        self.block_size = block_size
        self.capacity = capacity
        self._block_bytes = block_size * TOKEN_BYTES
        self._streams: dict[str | Everything | None, EventStream] = {}

    def subscribe(self, tenant: str | Everything | None) -> EventStream:
        """The stream of one tenant's events (None: those of nobody in particular), or of ALL.

        It is made at the first call, without what happened before, and lives as long as the hub:
        ask for tenants that exist. Raises ValueError for an empty name.
        """
        if tenant == "":
            raise ValueError("no tenant has an empty name; subscribe to None for those without one")
        # One step, so that two threads that subscribe at once get the same stream.
        return self._streams.setdefault(tenant, EventStream(tenant, self.capacity))

    def stored(
        self, namespace: Namespace, parent: bytes, run: bytes, blocks: Sequence[int]
    ) -> bytes:
        """These blocks have been computed and are stored after ``parent``; returns their hashes.

        Raises ValueError when ``run`` does not fill ``blocks``. Cost: see ``block_hash.chain``, and
        about 4 microseconds for each stream that covers the namespace.
        """
        if len(parent) != HASH_BYTES:
            raise ValueError(f"parent must be a hash of {HASH_BYTES} bytes, not {len(parent)}")
        if len(run) != len(blocks) * self._block_bytes:
            raise ValueError(
                f"run has {len(run) // TOKEN_BYTES} tokens, which do not fill {len(blocks)} blocks "
                f"of {self.block_size}"
            )
        hashes = block_hashes(parent, run, self.block_size)
        if hashes:
            for stream in self._covering(namespace):
                stream.stored(namespace, parent, run, blocks, hashes)
        return hashes

    def removed(self, namespace: Namespace, hashes: bytes) -> None:
        """These blocks are stored no more. ``hashes`` are joined."""
        if len(hashes) % HASH_BYTES:
            raise ValueError(f"hashes are {HASH_BYTES} bytes each; {len(hashes)} bytes are not")
        if hashes:
            for stream in self._covering(namespace):
                stream.removed(namespace, hashes)

    def cleared(self) -> None:
        """Nothing is stored any more. Every stream is told."""
        for stream in list(self._streams.values()):
            stream.cleared()

    def _covering(self, namespace: Namespace) -> list[EventStream]:
        streams = self._streams
        found = (streams.get(ALL), streams.get(namespace.tenant)) if streams else ()
        return [stream for stream in found if stream is not None]


def snapshot(stream: EventStream, entries: Iterable[Entry]) -> Snapshot:
    """What ``stream`` would have told of these entries: all computed blocks, parents first.

    Entries that are out of its scope, or empty, are left out. To be called on the cache's thread,
    so that nothing changes meanwhile. Cost: O(blocks).
    """
    sequence = stream.next_sequence - 1
    whole = stream.scope is ALL
    stored = [
        Stored(0, namespace, parent, run, tuple(blocks) if whole else (), hashes)
        for namespace, parent, run, blocks, hashes in entries
        if hashes and stream.covers(namespace)
    ]
    return Snapshot(sequence, stored)
