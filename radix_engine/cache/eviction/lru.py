"""Least recently used leaf first."""

from __future__ import annotations

from sortedcontainers import SortedDict

from radix_engine.cache.eviction.rule import Uninterested
from radix_engine.cache.node import Node, new_root


class LruLeaves(Uninterested):
    """The unpinned leaves by the end of their last access.

    A leaf that is released has the newest tick of all, so it goes to the end of a linked list:
    constant cost, and no table that is copied now and then as it grows. The links are the nodes'
    own, so a node can be in one such list only. Only a parent whose last child has gone comes back
    with an old tick; these few are kept sorted: O(log) of their number. Two leaves never share a
    tick, since one access touches one path, and a path has one leaf.
    """

    def __init__(self) -> None:
        self._ends = ends = new_root(0.0)  # stands before the oldest and after the newest
        ends.older = ends.newer = ends
        self._late: SortedDict[int, Node] = SortedDict()
        self._newest = 0
        self._linked = 0

    def __len__(self) -> int:
        return self._linked + len(self._late)

    def add(self, leaf: Node, now: float) -> None:
        """A leaf may be evicted from now on."""
        tick = leaf.tick
        if tick <= self._newest:
            self._late[tick] = leaf
            return
        self._newest = tick
        self._linked += 1
        ends = self._ends
        last = ends.older
        assert last is not None
        leaf.older, leaf.newer = last, ends
        last.newer = ends.older = leaf

    def discard(self, leaf: Node) -> None:
        """A leaf may no longer be evicted."""
        older, newer = leaf.older, leaf.newer
        if older is None or newer is None:
            self._late.pop(leaf.tick, None)
            return
        self._linked -= 1
        older.newer, newer.older = newer, older
        leaf.older = leaf.newer = None

    def victim(self, now: float) -> Node | None:
        """The leaf that has been idle for longest."""
        first = self._ends.newer if self._linked else None
        if not self._late:
            return first
        tick, leaf = self._late.peekitem(0)
        if first is not None and first.tick < tick:
            return first
        oldest: Node = leaf
        return oldest

    def removed(self, leaf: Node, now: float) -> None:
        """A leaf is no more."""
        self.discard(leaf)

    def leaves(self) -> list[Node]:
        """All of them, next victim first."""
        leaves = [*self._linked_leaves(), *self._late.values()]
        return sorted(leaves, key=lambda leaf: leaf.tick)

    def clear(self) -> None:
        """Forget all leaves."""
        for leaf in self._linked_leaves():
            leaf.older = leaf.newer = None
        self._ends.older = self._ends.newer = self._ends
        self._linked = 0
        self._late.clear()

    def _linked_leaves(self) -> list[Node]:
        leaves = []
        node = self._ends.newer
        while node is not None and node is not self._ends:
            leaves.append(node)
            node = node.newer
        return leaves
