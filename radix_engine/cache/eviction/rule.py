"""What an eviction rule is told and asked."""

from __future__ import annotations

from typing import Protocol

from radix_engine.cache.node import Node


class EvictionRule(Protocol):
    """Chooses the next victim among the leaves that nobody pins.

    Only these can be evicted, so a rule holds nothing else: pinning a leaf takes it out, releasing
    it puts it back. Times are the cache clock's, in seconds. A rule may keep one integer with each
    node, its ``rank``. While a node is held, its ``tick``, ``hits`` and ``rank`` do not change.
    """

    def accessed(self, end: Node, priority: int, now: float) -> None:
        """A request begins to use the path from the root to ``end``; or has just stored ``end``."""
        ...

    def ended(self, end: Node, now: float) -> None:
        """The request's reply has ended; ``end`` may have been split since it began."""
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
        """Forget all leaves."""
        ...
