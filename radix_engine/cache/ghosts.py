"""Ghosts: the tokens of evicted blocks, remembered for a while.

They tell a prompt that was evicted from one that was never seen, and what more memory would have
kept. They stay in the tree as the part of a node's run that has no blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from radix_engine.cache.node import Node, ghost_blocks, new_root
from radix_engine.cache.reason import Cause

# What `Ghosts.make_room` keeps free of the budget for evictions until its next call (at most, in
# blocks), and the nodes that one call looks at.
_MOST_ROOM = 1024
_MOST_DROPPED = 32


class Ghosts:
    """Which ghosts there are, within a budget in blocks' worth of tokens.

    The nodes with a ghost part form a linked list, the one evicted from longest ago first. What a
    split cuts off above a ghost is not in it, and goes when all below it has gone. ``on_forget`` is
    told (tick, blocks) before those are dropped that capacity took, ``destroy`` takes a node
    without blocks and children out of the tree, ``find_all`` finds all nodes with a ghost part,
    children first.
    """

    def __init__(
        self,
        budget_blocks: int,
        block_bytes: int,
        on_forget: Callable[[int, int], None],
        destroy: Callable[[Node], None],
        find_all: Callable[[], list[Node]],
    ) -> None:
        self.budget = budget_blocks
        self.blocks = 0
        self._block_bytes = block_bytes
        self._on_forget = on_forget
        self._destroy = destroy
        self._find_all = find_all
        self._room = min(budget_blocks // 16, _MOST_ROOM)
        self._ends = ends = new_root(0.0)  # stands before the oldest and after the newest
        ends.older_ghost = ends.newer_ghost = ends

    def add(self, node: Node, blocks: int) -> None:
        """The last ``blocks`` in memory of a node were evicted: they are now its ghost part's
        first.

        Cost: constant.
        """
        self.blocks += blocks
        if node.newer_ghost is not None:
            _unlink(node)
        ends = self._ends  # as in `_link`: this is on the way of every eviction
        last = ends.older_ghost
        assert last is not None
        node.older_ghost, node.newer_ghost = last, ends
        last.newer_ghost = ends.older_ghost = node

    def revived(self, node: Node, blocks: int) -> None:
        """The ghost part of a node, so many blocks, is stored again or has been dropped."""
        self.blocks -= blocks
        _unlink(node)

    def keep_budget(self) -> None:
        """Drop the oldest until the budget holds. Cost: amortised constant for a ghost added."""
        counted_anew = False
        while self.blocks > self.budget:
            oldest = self._oldest()
            if oldest is not None:
                self._drop(oldest, self.blocks - self.budget)
            elif counted_anew:
                return  # the audit tells of it; to go on is better than to stop serving
            else:
                self._list_anew()
                counted_anew = True

    def make_room(self) -> None:
        """Drop some of the oldest, so that evictions up to the next call need not: a bounded piece
        of work."""
        for _ in range(_MOST_DROPPED):
            excess, oldest = self.blocks + self._room - self.budget, self._oldest()
            if excess <= 0 or oldest is None:
                return
            self._drop(oldest, excess)

    def clear(self) -> None:
        """Forget that there are any."""
        self.blocks = 0
        for node in self.listed():
            node.older_ghost = node.newer_ghost = None
        ends = self._ends
        ends.older_ghost = ends.newer_ghost = ends

    def listed(self) -> list[Node]:
        """The nodes in the list, for audits, the one evicted from longest ago first."""
        nodes = []
        ends = self._ends
        node = ends.newer_ghost
        while node is not None and node is not ends:
            nodes.append(node)
            node = node.newer_ghost
        return nodes

    def _link(self, node: Node) -> None:
        ends = self._ends
        last = ends.older_ghost
        assert last is not None
        node.older_ghost, node.newer_ghost = last, ends
        last.newer_ghost = ends.older_ghost = node

    def _list_anew(self) -> None:
        """More ghosts are counted than are listed, which nothing should lead to: count again."""
        self.clear()
        for node in self._find_all():
            self.blocks += ghost_blocks(node, self._block_bytes)
            self._link(node)

    def _oldest(self) -> Node | None:
        node = self._ends.newer_ghost
        return None if node is self._ends else node

    def _drop(self, node: Node, excess: int) -> None:
        """Drop about ``excess`` ghost blocks of a node, or take it out of the list when it cannot
        go before others."""
        ghosts = ghost_blocks(node, self._block_bytes)
        if node.children or not ghosts:
            _unlink(node)
            return
        # An eighth at least, since what stays of a long run is copied.
        drop = min(ghosts, max(excess, ghosts // 8)) if ghosts > 1 else 1
        self._forget(node, drop)
        if drop == ghosts:
            _unlink(node)
            if not node.blocks:
                above = _above(node)
                self._destroy(node)
                self._drop_emptied(above)
                return
            node.cause = None
        node.run = node.run[: len(node.run) - drop * self._block_bytes]
        node.payload = node.payload[: len(node.run)]

    def _forget(self, node: Node, blocks: int) -> None:
        """The last ghost blocks of a node are no more. What was not lost for want of memory has
        been told of when it was lost."""
        if node.cause is Cause.CAPACITY:
            self._on_forget(node.tick, blocks)
        self.blocks -= blocks

    def _drop_emptied(self, top: Node | None) -> None:
        """Destroy what was cut off above a ghost that has gone, and is not in the list itself."""
        node = top
        while node is not None and not node.blocks and not node.children:
            if node.newer_ghost is not None:
                return
            self._forget(node, ghost_blocks(node, self._block_bytes))
            above = _above(node)
            self._destroy(node)
            node = above


def _above(node: Node) -> Node | None:
    """The next node above that has a run; a namespace goes with the last node below it."""
    above = node.parent
    while above is not None and not above.run:
        above = above.parent
    return above


def _unlink(node: Node) -> None:
    """Take a node out of the list, if it is in it."""
    older, newer = node.older_ghost, node.newer_ghost
    if older is not None and newer is not None:
        older.newer_ghost, newer.older_ghost = newer, older
        node.older_ghost = node.newer_ghost = None
