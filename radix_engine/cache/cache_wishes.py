"""What operators and clients may wish of a prefix cache, beside being served from it."""

from __future__ import annotations

from radix_engine.cache.cache_state import CacheState
from radix_engine.cache.event_hub import EventHub
from radix_engine.cache.events import EventStream, Everything, Snapshot
from radix_engine.cache.lease import Lease
from radix_engine.cache.namespace import DEFAULT, Namespace
from radix_engine.cache.public_paths import PublicPaths
from radix_engine.cache.retention import Retention
from radix_engine.cache.retentions import Retentions
from radix_engine.cache.snapshot import snapshot_of
from radix_engine.cache.tree import Tree


class CacheWishes(CacheState):
    """Prefixes that are kept, or shared by all namespaces; events for those who follow along.

    ``most_retained`` blocks may be kept in all, ``most_retained_each`` for one tenant.
    """

    def __init__(
        self, tree: Tree, most_retained: int, most_retained_each: int, *, events: bool
    ) -> None:
        super().__init__(tree)
        self.public = PublicPaths(tree.block_bytes)
        self.retentions = Retentions(tree, most_retained, most_retained_each)
        if events:
            tree.events = EventHub(tree.block_size)

    def retain(
        self, tokens: bytes, seconds: float | None = None, namespace: Namespace = DEFAULT
    ) -> Retention:
        """Keep what is stored of this prefix for a time, or until ``release_retention``.

        Raises RetentionRefused when nothing of it is stored, or over the cap. Cost: a match, and
        O(depth).
        """
        public = self.public.covered_bytes(tokens, namespace) if self.public else 0
        return self.retentions.retain(tokens, seconds, namespace, public)

    def refresh_retention(self, retention: Retention, seconds: float) -> None:
        """Let a retention last ``seconds`` from now; one that has ended stays so."""
        self.retentions.refresh(retention, seconds)

    def release_retention(self, retention: Retention) -> None:
        """End a retention before its time; again is a no-op."""
        self.retentions.release(retention)

    def note_tool_call(self, lease: Lease) -> None:
        """The reply of a request calls a tool, so that its branch may be called again soon: told
        before its lease is released, or after. What an eviction rule may go by. Cost: that of
        moving a leaf."""
        self._tree.leaves.rule.called_tool(lease, self._tree.clock())

    def mark_public(self, tokens: bytes, namespace: Namespace = DEFAULT) -> None:
        """An operator declares this prefix, in whole blocks, shared by all namespaces of the same
        weights and adapter. What they stored of it before is not found any more."""
        self.public.mark(tokens, namespace)
        self._tree.version += 1

    def unmark_public(self, tokens: bytes, namespace: Namespace = DEFAULT) -> bool:
        """Share it no longer; False if it was not marked."""
        self._tree.version += 1
        return self.public.unmark(tokens, namespace)

    def subscribe(self, scope: str | Everything | None) -> EventStream:
        """The stream of a tenant's events, or of ``ALL``, until ``unsubscribe``. Raises ValueError
        when the cache was made without events."""
        hub = self._tree.events
        if hub is None:
            raise ValueError("this cache was made without events; make it with events=True")
        return hub.subscribe(scope)

    def unsubscribe(self, stream: EventStream) -> None:
        """Take one subscription back, once; with the last one to it a stream ends."""
        if self._tree.events is not None:
            self._tree.events.unsubscribe(stream)

    def snapshot(self, stream: EventStream) -> Snapshot:
        """All that is stored, as a subscriber needs it to start or to go on after a loss."""
        return snapshot_of(self._tree, stream)
