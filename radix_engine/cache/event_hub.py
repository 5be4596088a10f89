"""Who is told of what happens to the stored prefixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock

from radix_engine.cache.block_hash import HASH_BYTES, block_hashes
from radix_engine.cache.events import ALL, EventStream, Everything, random_identity
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.token_run import TOKEN_BYTES


class EventHub:
    """Hashes what a cache stores and tells the streams of those who subscribed.

    The cache's thread calls ``stored``, ``removed`` and ``cleared``; any thread may subscribe and
    unsubscribe. ``block_size`` is in tokens; each stream keeps ``capacity`` events, some 150 bytes
    each. Runs and hashes are held once for all streams, 96 bytes a block of 16 tokens.
    ``new_identity`` names each new stream.
    """

    def __init__(
        self,
        block_size: int,
        capacity: int = 65536,
        new_identity: Callable[[], str] = random_identity,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1 token, not {block_size}")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 event, not {capacity}")
        self.block_size = block_size
        self.capacity = capacity
        self._block_bytes = block_size * TOKEN_BYTES
        self._new_identity = new_identity
        self._streams: dict[str | Everything | None, EventStream] = {}
        self._subscribers: Counter[str | Everything | None] = Counter()
        self._lock = Lock()

    def subscribe(self, tenant: str | Everything | None) -> EventStream:
        """The stream of one tenant's events (None: those of nobody in particular), or of ALL.

        It is made for the first subscriber, without what happened before; those who come later
        share it. It lasts until each has unsubscribed: ask for tenants that exist. Raises
        ValueError for an empty name.
        """
        if tenant == "":
            raise ValueError("no tenant has an empty name; subscribe to None for those without one")
        with self._lock:
            stream = self._streams.get(tenant)
            if stream is None:
                stream = EventStream(tenant, self.capacity, self._new_identity())
                self._streams[tenant] = stream
            self._subscribers[tenant] += 1
            return stream

    def unsubscribe(self, stream: EventStream) -> None:
        """Take one subscription back, once; with the last one the stream ends. Nothing happens for
        one that has ended."""
        with self._lock:
            scope = stream.scope
            if self._streams.get(scope) is not stream:
                return
            self._subscribers[scope] -= 1
            if not self._subscribers[scope]:
                stream.end()
                del self._streams[scope], self._subscribers[scope]

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
        return [stream for stream in found if stream is not None and stream.covers(namespace)]
