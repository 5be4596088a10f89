"""Taking blocks back: for others (evict), and after a time (expire)."""

from __future__ import annotations

from array import array

from radix_engine.cache.block_hash import HASH_BYTES
from radix_engine.cache.node import Node
from radix_engine.cache.reason import Cause
from radix_engine.cache.storing import chain_before
from radix_engine.cache.token_run import token_array
from radix_engine.cache.tree import Tree

# Leaves that one call of ``expire`` looks at, so that no single call takes long.
_MOST_EXPIRED = 256


def evict(tree: Tree, count: int) -> int:
    """Take up to ``count`` unpinned blocks back; see `PrefixCache.evict`."""
    freed = token_array()
    now = tree.clock()
    victim = tree.leaves.victim
    left = count
    while left > 0 and (leaf := victim(now)) is not None:
        left -= _take(tree, leaf, left, Cause.CAPACITY, now, freed)
    _done(tree, freed)
    tree.counters.evicted_blocks += len(freed)
    return len(freed)


def expire(tree: Tree, ttl: float) -> int:
    """Take back whole leaves that have been idle for longer than ``ttl`` seconds."""
    freed = token_array()
    now = tree.clock()
    for _ in range(_MOST_EXPIRED):
        leaf = tree.leaves.oldest(now)
        if leaf is None or now - leaf.last_used <= ttl:
            break
        tree.curve.forget(leaf.tick, len(leaf.blocks))
        _take(tree, leaf, len(leaf.blocks), Cause.TTL, now, freed)
    _done(tree, freed)
    tree.counters.expired_blocks += len(freed)
    return len(freed)


def _take(tree: Tree, leaf: Node, count: int, cause: Cause, now: float, freed: array[int]) -> int:
    """Take up to ``count`` blocks off a leaf's tail; how many."""
    blocks = leaf.blocks
    taken = len(blocks)
    whole = taken <= count
    if whole:
        tree.leaves.discard(leaf)
        freed.extend(blocks)
        del blocks[:]
    else:
        keep, taken = taken - count, count
        freed.extend(blocks[keep:])
        del blocks[keep:]
    if leaf.hashes:
        namespace, _ = chain_before(leaf)
        assert tree.events is not None
        kept = len(blocks) * HASH_BYTES
        tree.events.removed(namespace, leaf.hashes[kept:])
        leaf.hashes = leaf.hashes[:kept]
    if leaf.retained:
        tree.retained_blocks -= taken
    leaf.cause = cause
    tree.ghosts.add(leaf, taken)
    if whole:
        tree.child_emptied(leaf)
        tree.leaves.rule.removed(leaf, now)
        if leaf.retained:
            tree.on_retained_emptied(leaf)
    return taken


def _done(tree: Tree, freed: array[int]) -> None:
    if freed:
        tree.pool.free_from_tree(freed)
        tree.evictable -= len(freed)
        tree.version += 1
        tree.ghosts.prune()
