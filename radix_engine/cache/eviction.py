"""Which leaf goes first when blocks are needed: the least recently used one."""

from __future__ import annotations

from sortedcontainers import SortedDict

from radix_engine.cache.node import Node


class LruLeaves:
    """The unpinned leaves, ordered by their last access.

    Only these can be evicted, so the index holds nothing else: pinning a leaf takes it out,
    releasing it puts it back. Two leaves never share a tick, since one access touches one path and
    a path has one leaf. Costs: O(log leaves) each.
    """

    def __init__(self) -> None:
        self._by_tick: SortedDict[int, Node] = SortedDict()

    def __len__(self) -> int:
        return len(self._by_tick)

    def add(self, leaf: Node) -> None:
        """A leaf may be evicted from now on."""
        self._by_tick[leaf.tick] = leaf

    def discard(self, leaf: Node) -> None:
        """A leaf may no longer be evicted."""
        self._by_tick.pop(leaf.tick, None)

    def oldest(self) -> Node | None:
        """The next victim; it stays in the index."""
        if not self._by_tick:
            return None
        leaf: Node = self._by_tick.peekitem(0)[1]
        return leaf

    def leaves(self) -> list[Node]:
        """All of them, next victim first."""
        return list(self._by_tick.values())

    def clear(self) -> None:
        """Forget all leaves."""
        self._by_tick.clear()
