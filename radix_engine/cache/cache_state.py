"""What can be read of a prefix cache at any time, at constant cost."""

from __future__ import annotations

from radix_engine.cache.block_pool import BlockPool
from radix_engine.cache.interface import CacheCounters
from radix_engine.cache.node import Node
from radix_engine.cache.tree import Tree


class CacheState:
    """The counts that a tree keeps as it goes, and the tree itself."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.block_size = tree.block_size

    @property
    def pool(self) -> BlockPool:
        """Who owns each block."""
        return self._tree.pool

    @property
    def counters(self) -> CacheCounters:
        """Events since the start."""
        return self._tree.counters

    @property
    def version(self) -> int:
        """Grows with every change that can make a match wrong."""
        return self._tree.version

    @property
    def root(self) -> Node:
        """The tree, for dumps and audits; its children are the namespaces."""
        return self._tree.root

    @property
    def detached(self) -> list[Node]:
        """Roots of flushed or withdrawn trees that leases still pin."""
        return self._tree.detached

    @property
    def evictable_blocks(self) -> int:
        """Blocks in the tree that no lease pins."""
        return self._tree.evictable

    @property
    def available_blocks(self) -> int:
        """What ``allocate`` can hand out: free blocks and those it may evict."""
        return self._tree.pool.free_blocks + self._tree.evictable

    @property
    def ghost_tokens(self) -> int:
        """Tokens of evicted blocks that are still known."""
        return self._tree.ghosts.blocks * self.block_size

    @property
    def retained_blocks(self) -> int:
        """Blocks that retentions cover."""
        return self._tree.retained.blocks
