"""The radix prefix cache: which blocks hold which prefixes, who uses them, and what goes first.

Who owns a request's tokens at any moment::

    |  leased from the tree   |  computed by this request, published   |  private tail  |
    0                   cached tokens                          lease.num_tokens    num_computed
       shared, read-only            shared, read-only             written by it alone

The cache hands blocks out (``allocate``), takes computed ones over (``publish``), pins paths for
requests (``lease``) and takes the least recently used unpinned ones back when the pool runs dry.
It knows no tensor: a block is a number. One thread at a time.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from radix_engine.cache.block_pool import BlockPool, OwnershipError
from radix_engine.cache.eviction import LruLeaves
from radix_engine.cache.lease import Lease, Match
from radix_engine.cache.node import Node, new_root, split
from radix_engine.cache.token_run import TOKEN_BYTES, common_prefix_bytes, token_array

logger = logging.getLogger(__name__)


class StaleMatch(RuntimeError):
    """The tree has changed since this match was made: match again."""


@dataclass(slots=True)
class CacheCounters:
    """Events since the start."""

    evicted_blocks: int = 0
    duplicate_blocks: int = 0
    repeated_releases: int = 0
    flushes: int = 0


class PrefixCache:
    """A radix tree over ``num_blocks`` blocks of ``block_size`` tokens.

    ``clock`` gives seconds, for ages in dumps; the order of eviction uses a counter of accesses.
    """

    def __init__(
        self, num_blocks: int, block_size: int = 16, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1 token, not {block_size}")
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.root = new_root(clock())
        self.detached: list[Node] = []  # roots of flushed trees that leases still pin
        self.leaves = LruLeaves()
        self.counters = CacheCounters()
        self.version = 0  # grows with every change that can make a match wrong
        self._clock = clock
        self._tick = 0
        self._block_bytes = block_size * TOKEN_BYTES
        self._evictable = 0

    @property
    def evictable_blocks(self) -> int:
        """Blocks in the tree that no lease pins."""
        return self._evictable

    @property
    def available_blocks(self) -> int:
        """What ``allocate`` can hand out: free blocks and those it may evict."""
        return self.pool.free_blocks + self._evictable

    def match(self, tokens: bytes) -> Match:
        """How far the tree covers this run, in whole blocks and short of its last token.

        Changes nothing. Cost: one look-up and one compare an edge, O(tokens) bytes compared.
        """
        step = self._block_bytes
        end = max(0, len(tokens) - TOKEN_BYTES) // step * step
        node, at = self.root, 0
        while at < end:
            child = node.children.get(tokens[at : at + step])
            if child is None:
                break
            run = child.run
            if len(run) <= end - at and tokens.startswith(run, at):
                node = child
                at += len(run)
                continue
            inside = min(common_prefix_bytes(tokens, at, run, step), end - at)
            return Match(child, inside, (at + inside) // TOKEN_BYTES, self.version)
        return Match(node, len(node.run), at // TOKEN_BYTES, self.version)

    def unpinned_blocks(self, match: Match) -> int:
        """Matched blocks that nobody pins yet: what leasing this match takes from the evictable
        ones.

        Cost: the depth down to the first pinned node.
        """
        if match.node.pins:
            return 0
        count = match.inside_bytes // self._block_bytes
        node = match.node.parent
        while node is not None and not node.pins:
            count += len(node.blocks)
            node = node.parent
        return count

    def lease(self, match: Match) -> Lease:
        """Pin the matched path (splitting the edge it ends in) and count it as used.

        Raises StaleMatch when the tree has changed since. Cost: O(depth), and one copy when it
        splits.
        """
        if match.version != self.version:
            raise StaleMatch(f"match of version {match.version}, the tree is at {self.version}")
        node = match.node
        if match.inside_bytes < len(node.run):
            node = split(node, match.inside_bytes, self._block_bytes)
            self.version += 1
        self._pin(node, None)
        self._touch(node, hit=True)
        return Lease(node, self.root, match.num_tokens)

    def lease_nothing(self) -> Lease:
        """A lease of no tokens, for a request that reads nothing from the tree."""
        return Lease(self.root, self.root, 0)

    def publish(self, lease: Lease, run: bytes, blocks: array[int]) -> array[int]:
        """Hand computed full blocks to the tree: ``run`` are the tokens right after the lease's.

        Returns the blocks that hold these tokens from now on; the caller's block table must take
        them over. They differ from ``blocks`` where another request published the same tokens
        first; the caller's duplicates of those are then free. The lease covers the published
        tokens afterwards. Idempotent in the tree's shape. Cost: O(tokens of the run).
        """
        step = self._block_bytes
        if lease.released:
            raise OwnershipError("a released lease cannot publish")
        if len(run) != len(blocks) * step:
            raise ValueError(
                f"{len(run) // TOKEN_BYTES} tokens do not fill {len(blocks)} blocks "
                f"of {self.block_size}"
            )
        if not run:
            return token_array()
        self.pool.publish(blocks)  # refuses before anything has changed
        node, at = lease.node, 0
        canonical = token_array()
        while at < len(run):
            child = node.children.get(run[at : at + step])
            if child is None:
                break
            shared = common_prefix_bytes(run, at, child.run, step)
            if shared < len(child.run):
                child = split(child, shared, step)
            canonical.extend(child.blocks)
            node, at = child, at + shared
        stored_before = at // step
        self._pin(node, lease.node)
        if at < len(run):
            fresh = blocks[stored_before:]
            node = self._store(lease, node, run[at:], fresh)
            canonical.extend(fresh)
        self._touch(node, hit=False)
        lease.node = node
        lease.num_tokens += len(run) // TOKEN_BYTES
        self.version += 1
        if stored_before:
            self.counters.duplicate_blocks += stored_before
            self.pool.free_from_tree(blocks[:stored_before])
        return canonical

    def release(self, lease: Lease) -> None:
        """Give a leased path back; its blocks stay in the tree until they are evicted.

        A second release of the same lease changes nothing; it is counted and logged. Cost:
        O(depth).
        """
        if lease.released:
            self.counters.repeated_releases += 1
            logger.warning("a lease of %d tokens was released twice", lease.num_tokens)
            return
        lease.released = True
        if lease.root is self.root:
            self._touch(lease.node, hit=False)
            self._unpin(lease.node)
        else:
            self._unpin_detached(lease.node)

    def allocate(self, count: int) -> array[int] | None:
        """``count`` blocks for a request's private tail, or None (and no change) if there are too
        few.

        Free blocks go first; only what is missing is evicted.
        """
        if count > self.available_blocks:
            return None
        missing = count - self.pool.free_blocks
        if missing > 0:
            self.evict(missing)
        return self.pool.allocate(count)

    def free(self, blocks: array[int]) -> None:
        """A request gives blocks of its private tail back."""
        self.pool.free_private(blocks)

    def evict(self, count: int) -> int:
        """Take up to ``count`` unpinned blocks back, least recently used leaf first, from its tail.

        Returns how many were freed. Cost: O(log leaves) a leaf.
        """
        freed = token_array()
        while len(freed) < count and (leaf := self.leaves.oldest()) is not None:
            keep = max(0, len(leaf.blocks) - (count - len(freed)))
            freed.extend(leaf.blocks[keep:])
            if keep:
                leaf.blocks = leaf.blocks[:keep]
                leaf.run = leaf.run[: keep * self._block_bytes]
            else:
                self.leaves.discard(leaf)
                self._remove(leaf)
        if freed:
            self.pool.free_from_tree(freed)
            self._evictable -= len(freed)
            self.counters.evicted_blocks += len(freed)
            self.version += 1
        return len(freed)

    def flush(self) -> int:
        """Start with an empty tree; returns the blocks freed at once.

        Running requests are untouched: what they pin stays theirs in a detached tree, out of reach
        of new ones, and comes back as their leases end.
        """
        old, self.root = self.root, new_root(self._clock())
        self.leaves.clear()
        freed = token_array()
        todo = [old]
        while todo:
            node = todo.pop()
            for key, child in list(node.children.items()):
                if not child.pins:
                    del node.children[key]
                    freed.extend(child.blocks)
                    child.parent = None
                todo.append(child)
        self.pool.free_from_tree(freed)
        self._evictable = 0
        if old.children:
            self.detached.append(old)
        self.counters.flushes += 1
        self.version += 1
        return len(freed)

    def _store(self, lease: Lease, node: Node, run: bytes, blocks: array[int]) -> Node:
        """Put a new run, pinned by this lease, below ``node``; or make ``node`` longer, where the
        lease alone ends there and nothing hangs below."""
        if node is lease.node and node.pins == 1 and not node.children and node.parent is not None:
            node.run += run
            node.blocks.extend(blocks)
            return node
        child = Node(run, blocks, node)
        child.pins = 1
        node.children[run[: self._block_bytes]] = child
        if lease.root is not self.root and lease.root not in self.detached:
            self.detached.append(lease.root)
        return child

    def _pin(self, node: Node, above: Node | None) -> None:
        """Pin the path from ``node`` up to, but without, ``above`` (None: up to the root)."""
        while node is not above and node.parent is not None:
            if node.pins == 0:
                self._evictable -= len(node.blocks)
                if not node.children:
                    self.leaves.discard(node)
            node.pins += 1
            node = node.parent

    def _unpin(self, node: Node) -> None:
        while node.parent is not None:
            node.pins -= 1
            if node.pins == 0:
                self._evictable += len(node.blocks)
                if not node.children:
                    self.leaves.add(node)
            node = node.parent

    def _unpin_detached(self, node: Node) -> None:
        while node.parent is not None:
            parent = node.parent
            node.pins -= 1
            if node.pins == 0:
                self.pool.free_from_tree(node.blocks)
                del parent.children[node.run[: self._block_bytes]]
            node = parent
        if not node.children and node in self.detached:
            self.detached.remove(node)

    def _touch(self, node: Node, *, hit: bool) -> None:
        """Count an access to the whole path; it is pinned, so no index holds its old ticks."""
        self._tick += 1
        now = self._clock()
        walk: Node | None = node
        while walk is not None:
            walk.tick = self._tick
            walk.last_used = now
            walk.hits += hit
            walk = walk.parent

    def _remove(self, leaf: Node) -> None:
        parent = leaf.parent
        assert parent is not None
        del parent.children[leaf.run[: self._block_bytes]]
        leaf.parent = None
        if not parent.children and not parent.pins and parent.parent is not None:
            self.leaves.add(parent)
