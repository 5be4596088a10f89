"""What an eviction rule is told and asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from radix_engine.cache.lease import Lease
from radix_engine.cache.node import Node


class EvictionRule(Protocol):
    """Chooses the next victim among the leaves that nobody pins.

    Only these can be evicted, so a rule holds no other leaves: pinning one takes it out, releasing
    it puts it back. Times are the cache clock's, in seconds, which may be equal and may even go
    back. A rule may keep an integer with each node, its ``rank``, where it holds it, ``place``, and
    what it likes with each lease, its ``note``. While a node is held, its ``tick``, ``hits`` and
    ``rank`` do not change, but for what the rule itself does.
    """

    def attach(self, lru_hit_tokens: Callable[[], int], num_blocks: int) -> None:
        """The rule serves a cache of so many blocks from now on. ``lru_hit_tokens``: how many
        prompt tokens LRU would have served from that memory so far."""
        ...

    def begun(self, lease: Lease, seen: Node, reach: int, now: float) -> None:
        """A request begins to use the path of this lease. Its prompt is known, ghosts included, for
        ``reach`` tokens, which end at the node ``seen`` or inside its run."""
        ...

    def forked(self, lease: Lease, origin: Lease, now: float) -> None:
        """A branch of a request begins to use what the request's own lease covers."""
        ...

    def stored(self, lease: Lease, now: float) -> None:
        """The request has just stored more; its path ends at the lease's node now."""
        ...

    def called_tool(self, lease: Lease, now: float) -> None:
        """The request's reply calls a tool: a reason to expect the next call soon. Comes shortly
        before the end, or after it, or never."""
        ...

    def ended(self, lease: Lease, now: float) -> None:
        """The request's reply has ended. Its path has a new tick, unless it is empty; it may be in
        a tree that was flushed."""
        ...

    def add(self, leaf: Node, now: float) -> None:
        """The leaf may be evicted from now on."""
        ...

    def discard(self, leaf: Node) -> None:
        """The leaf, which was added, is in use again, or about to change."""
        ...

    def victim(self, now: float) -> Node | None:
        """The leaf to take blocks from next; it stays. None when there is none."""
        ...

    def removed(self, leaf: Node, now: float) -> None:
        """The leaf, which was added, is no more: all its blocks are being taken."""
        ...

    def leaves(self) -> list[Node]:
        """All leaves held, for audits."""
        ...

    def clear(self) -> None:
        """Forget all leaves: the cache was flushed."""
        ...


class Uninterested:
    """For rules to which the nodes' own counts say all: what they are told and need not hear."""

    def attach(self, lru_hit_tokens: Callable[[], int], num_blocks: int) -> None:
        """Nothing to note."""

    def begun(self, lease: Lease, seen: Node, reach: int, now: float) -> None:
        """Nothing to note: a node in use is not among the leaves."""

    def forked(self, lease: Lease, origin: Lease, now: float) -> None:
        """Nothing to note."""

    def stored(self, lease: Lease, now: float) -> None:
        """Nothing to note."""

    def called_tool(self, lease: Lease, now: float) -> None:
        """Nothing to note."""

    def ended(self, lease: Lease, now: float) -> None:
        """Nothing to note: the nodes' ticks say it."""
