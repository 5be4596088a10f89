"""Least recently used leaf first."""

from __future__ import annotations

from collections import OrderedDict

from sortedcontainers import SortedDict

from radix_engine.cache.node import Node


class LruLeaves:
    """The unpinned leaves by the end of their last access.

    A leaf that is released has the newest tick of all, so it goes to the end of a linked list:
    constant cost. Only a parent whose last child has gone comes back with an old tick; these few
    are kept sorted: O(log) of their number. Two leaves never share a tick, since one access touches
    one path, and a path has one leaf.
    """

    def __init__(self) -> None:
        self._by_tick: OrderedDict[int, Node] = OrderedDict()
        self._late: SortedDict[int, Node] = SortedDict()
        self._newest = 0

    def __len__(self) -> int:
        return len(self._by_tick) + len(self._late)

    def accessed(self, end: Node, priority: int, now: float) -> None:
        """Nothing to note: a node in use is not among the leaves."""

    def ended(self, end: Node, now: float) -> None:
        """Nothing to note: the nodes' ticks say it."""

    def add(self, leaf: Node, now: float) -> None:
        """A leaf may be evicted from now on."""
        tick = leaf.tick
        if tick > self._newest:
            self._newest = tick
            self._by_tick[tick] = leaf
        else:
            self._late[tick] = leaf

    def discard(self, leaf: Node) -> None:
        """A leaf may no longer be evicted."""
        if self._by_tick.pop(leaf.tick, None) is None:
            self._late.pop(leaf.tick, None)

    def victim(self, now: float) -> Node | None:
        """The leaf that has been idle for longest."""
        late = self._late
        if not late:
            for tick in self._by_tick:
                return self._by_tick[tick]
            return None
        tick, leaf = late.peekitem(0)
        first = next(iter(self._by_tick), None)
        if first is not None and first < tick:
            return self._by_tick[first]
        oldest: Node = leaf
        return oldest

    def removed(self, leaf: Node, now: float) -> None:
        """Nothing to note."""

    def leaves(self) -> list[Node]:
        """All of them, next victim first."""
        return [leaf for _, leaf in sorted([*self._by_tick.items(), *self._late.items()])]

    def clear(self) -> None:
        """Forget all leaves."""
        self._by_tick.clear()
        self._late.clear()
