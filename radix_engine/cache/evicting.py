"""Taking blocks back: for others (evict), and after a time (expire)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from radix_engine.cache.block_hash import HASH_BYTES
from radix_engine.cache.node import Node
from radix_engine.cache.reason import Cause
from radix_engine.cache.storing import chain_before
from radix_engine.cache.token_run import token_array
from radix_engine.cache.tree import Tree

# Leaves that one call of ``expire`` looks at, so that no single call takes long.
_MOST_EXPIRED = 128


def evict(tree: Tree, count: int) -> int:
    """Take up to ``count`` unpinned blocks back; see `PrefixCache.evict`."""
    now = tree.clock()
    victims = iter(partial(tree.leaves.victim, now), None)
    freed = _take(tree, victims, count, Cause.CAPACITY, now)
    tree.counters.evicted_blocks += freed
    return freed


def expire(tree: Tree, ttl: float) -> int:
    """Take back whole leaves that have been idle for longer than ``ttl`` seconds."""
    now = tree.clock()
    idle = _idle_leaves(tree, ttl, now)
    freed = _take(tree, idle, tree.pool.num_blocks, Cause.TTL, now)
    tree.counters.expired_blocks += freed
    return freed


def _idle_leaves(tree: Tree, ttl: float, now: float) -> Iterator[Node]:
    for _ in range(_MOST_EXPIRED):
        leaf = tree.leaves.oldest(now)
        if leaf is None or now - leaf.last_used <= ttl:
            return
        tree.curve.forget(leaf.tick, len(leaf.blocks))
        yield leaf


def _take(tree: Tree, victims: Iterator[Node], count: int, cause: Cause, now: float) -> int:
    """Take up to ``count`` blocks off the tails of leaves; how many. The tokens become ghosts."""
    freed = token_array()
    left = count
    for leaf in victims if left > 0 else ():
        blocks = leaf.blocks
        taken = len(blocks)
        whole = taken <= left
        if whole:
            tree.leaves.removed(leaf, now)
            freed.extend(blocks)
            del blocks[:]
        else:
            freed.extend(blocks[-left:])
            del blocks[-left:]
            taken = left
        if leaf.hashes:
            _tell_removed(tree, leaf)
        if leaf.retained:
            tree.retained_blocks -= taken
        leaf.cause = cause
        tree.ghosts.add(leaf, taken)
        if whole:
            tree.child_emptied(leaf)
            if leaf.retained:
                tree.on_retained_emptied(leaf)
        left -= taken
        if not left:
            break
    if freed:
        tree.pool.free_from_tree(freed)
        tree.evictable -= len(freed)
        tree.version += 1
        tree.ghosts.keep_budget()
    return len(freed)


def _tell_removed(tree: Tree, leaf: Node) -> None:
    assert tree.events is not None
    namespace, _ = chain_before(leaf)
    kept = len(leaf.blocks) * HASH_BYTES
    tree.events.removed(namespace, leaf.hashes[kept:])
    leaf.hashes = leaf.hashes[:kept]
