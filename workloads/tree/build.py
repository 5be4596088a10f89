"""Prefix trees of a given number of leaves, to measure on.

A tree as a server has it that has run for a while: as many ghosts as the default keeps for a pool
that is filled by such leaves, and leaves in the order of their last use.

    namespace -+- head of 32 tokens -+- leaf of 16 tokens
               |                     +- leaf of 16 tokens ...   about 10 below each head
               +- head ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from radix_engine.cache import Lease, PrefixCache

BLOCK = 16
TOKEN_BYTES = 4
BLOCK_BYTES = BLOCK * TOKEN_BYTES
VOCABULARY = 50_000
LEAVES_PER_HEAD = 10
GHOSTS_PER_BLOCK = 3  # the cache's default

Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class GrownTree:
    """A tree of ``leaves`` leaves; each begins with one of ``heads``."""

    leaves: int
    cache: PrefixCache
    heads: list[bytes]
    rng: np.random.Generator

    def store_leaf(self) -> None:
        """One more leaf, below a head drawn at random."""
        head = self.heads[int(self.rng.integers(len(self.heads)))]
        store(self.cache, head + tokens(self.rng, BLOCK))


def tokens(rng: np.random.Generator, count: int) -> bytes:
    """A run of random token ids, as the cache takes it."""
    return rng.integers(0, VOCABULARY, count, dtype=np.int32).tobytes()


def store(cache: PrefixCache, run: bytes) -> None:
    """What a request of these tokens, whole blocks, leaves in the tree."""
    cache.release(publish(cache, run))


def publish(cache: PrefixCache, run: bytes) -> Lease:
    """Store these tokens, whole blocks, and keep them leased."""
    lease = cache.lease(cache.match(run + bytes(TOKEN_BYTES)))
    rest = run[lease.num_tokens * TOKEN_BYTES :]
    blocks = cache.allocate(len(rest) // BLOCK_BYTES)
    if blocks is None:
        raise RuntimeError("the pool of the measured cache is too small")
    cache.publish(lease, rest, blocks)
    return lease


def empty_tree(leaves: int, room: int, seed: int = 0, eviction: str = "lru") -> GrownTree:
    """A tree without leaves yet, in a pool for ``leaves`` of them and ``room`` blocks more."""
    rng = np.random.default_rng(seed)
    heads = [tokens(rng, 2 * BLOCK) for _ in range(max(1, leaves // LEAVES_PER_HEAD))]
    blocks = leaves + 2 * len(heads)
    ghosts = GHOSTS_PER_BLOCK * blocks
    cache = PrefixCache(blocks + room, BLOCK, ghost_blocks=ghosts, eviction=eviction)
    return GrownTree(leaves, cache, heads, rng)


def store_leaves(tree: GrownTree, progress: Progress) -> None:
    """Fill an empty tree. ``progress`` is told how many leaves were stored since it last was."""
    for _ in range(tree.leaves):
        tree.store_leaf()
        progress(1)


def make_ghosts(tree: GrownTree, progress: Progress) -> None:
    """Exchange leaves, oldest first, until there are as many ghosts as the cache keeps."""
    for _ in range(GHOSTS_PER_BLOCK * (tree.leaves + 2 * len(tree.heads))):
        tree.cache.evict(1)
        tree.store_leaf()
        progress(1)
