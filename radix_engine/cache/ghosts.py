"""Ghosts: the tokens of evicted blocks, remembered for a while.

They tell a prompt that was evicted from one that was never seen, and what more memory would have
kept. They stay in the tree as the part of a node's run that has no blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from radix_engine.cache.node import Node, ghost_blocks


class Ghosts:
    """Which ghosts there are, oldest eviction first, within a budget in blocks' worth of tokens.

    An entry of the queue is good while the node's ``stamp`` is the entry's; a node that is evicted
    from again, or stored again, gets another. ``on_forget`` is told (node, blocks) before a ghost
    part is dropped, ``destroy`` takes a node without blocks and children out of the tree.
    """

    def __init__(
        self,
        budget_blocks: int,
        block_bytes: int,
        on_forget: Callable[[Node, int], None],
        destroy: Callable[[Node], None],
    ) -> None:
        self.budget = budget_blocks
        self.blocks = 0
        self._block_bytes = block_bytes
        self._on_forget = on_forget
        self._destroy = destroy
        self._queue: deque[tuple[int, Node]] = deque()
        self._stamp = 0

    def add(self, node: Node, blocks: int) -> None:
        """The last ``blocks`` in memory of a node were evicted: they are now its ghost part's
        first.

        Cost: constant.
        """
        self.blocks += blocks
        self._stamp += 1
        node.stamp = self._stamp
        self._queue.append((self._stamp, node))

    def revived(self, blocks: int) -> None:
        """So many ghost blocks are stored again."""
        self.blocks -= blocks

    def prune(self) -> None:
        """Drop the oldest until the budget holds. Cost: amortised constant for a ghost added."""
        block_bytes = self._block_bytes
        while self.blocks > self.budget:
            stamp, node = self._queue.popleft()
            ghosts = ghost_blocks(node, block_bytes)
            if node.stamp != stamp or not ghosts or node.children:
                continue
            # An eighth at least, since what stays of a long run is copied.
            drop = min(ghosts, max(self.blocks - self.budget, ghosts // 8))
            self._on_forget(node, drop)
            self.blocks -= drop
            if drop < ghosts or node.blocks:
                node.run = node.run[: len(node.run) - drop * block_bytes]
                node.payload = node.payload[: len(node.run)]
                if drop < ghosts:
                    self._queue.appendleft((stamp, node))
                else:
                    node.cause = None
                continue
            self._drop_emptied(node, stamp)

    def clear(self) -> None:
        """Forget that there are any."""
        self.blocks = 0
        self._queue.clear()

    def _drop_emptied(self, node: Node, stamp: int) -> None:
        """Destroy a node without tokens; and what was cut off above it and is as old."""
        while True:
            parent = node.parent
            self._destroy(node)
            if parent is None or parent.blocks or parent.children or not parent.run:
                return
            if parent.stamp > stamp:
                return  # has an entry of its own, further back
            ghosts = ghost_blocks(parent, self._block_bytes)
            self._on_forget(parent, ghosts)
            self.blocks -= ghosts
            node = parent
