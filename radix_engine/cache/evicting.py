"""Taking blocks back: for others (evict), and after a time (expire)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import partial

from radix_engine.cache.block_hash import HASH_BYTES
from radix_engine.cache.hash_chain import chain_before
from radix_engine.cache.node import Node, ghost_blocks
from radix_engine.cache.reason import Cause
from radix_engine.cache.token_run import token_array
from radix_engine.cache.tree import Tree

# Leaves that one call of ``expire`` looks at, so that no single call takes long.
_MOST_EXPIRED = 32

_CAPACITY = Cause.CAPACITY  # Python 3.11 finds a member by a function that is written in Python


def allocate(tree: Tree, count: int) -> array[int] | None:
    """Private blocks, evicting what is missing; see `PrefixCache.allocate`."""
    missing = count - tree.pool.free_blocks
    if missing > 0:
        if missing > tree.evictable:
            return None
        evict(tree, missing)
    return tree.pool.allocate(count) if count else token_array()


def evict(tree: Tree, count: int) -> int:
    """Take up to ``count`` unpinned blocks back; see `PrefixCache.evict`."""
    now = tree.clock()
    victims = iter(partial(tree.leaves.victim, now), None)
    freed = _take(tree, victims, count, _CAPACITY, now)
    tree.counters.evicted_blocks += freed
    return freed


def expire(tree: Tree, ttl: float) -> int:
    """Take back whole leaves that have been idle for longer than ``ttl`` seconds."""
    now = tree.clock()
    idle = _idle_leaves(tree, ttl, now)
    freed = _take(tree, idle, tree.pool.num_blocks, Cause.TTL, now)
    tree.counters.expired_blocks += freed
    return freed


def take_out_of_use(tree: Tree, nodes: Iterable[Node]) -> int:
    """Evict each of these nodes from its first block in quarantine on, with all below it, unless it
    is pinned; how many blocks. So no block in quarantine counts as evictable.

    Cost: O(blocks of the nodes, and what is evicted).
    """
    freed, now, pool = 0, tree.clock(), tree.pool
    for node in nodes:
        sound = pool.before_quarantined(node.blocks)
        if node.pins or sound == len(node.blocks):
            continue
        if sound:
            tree.split(node, sound * tree.block_bytes)
        below = _with_blocks_below(node)
        count = sum(len(one.blocks) for one in below)
        freed += _take(tree, iter(below), count, Cause.FAULT, now)
    return freed


def _with_blocks_below(top: Node) -> list[Node]:
    """The nodes from ``top`` on that hold blocks, deepest first."""
    nodes = []
    todo = [top]
    while todo:
        node = todo.pop()
        todo.extend(node.children.values())
        if node.blocks:
            nodes.append(node)
    return nodes[::-1]


def _idle_leaves(tree: Tree, ttl: float, now: float) -> Iterator[Node]:
    for _ in range(_MOST_EXPIRED):
        leaf = tree.leaves.oldest(now)
        if leaf is None or now - leaf.last_used <= ttl:
            return
        yield leaf


def _take(tree: Tree, victims: Iterator[Node], count: int, cause: Cause, now: float) -> int:
    """Take up to ``count`` blocks off the tails of leaves; how many. The tokens become ghosts."""
    freed = token_array()
    left = count
    # What capacity did not take would be gone whatever the size of the memory.
    by_capacity = cause is _CAPACITY
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
            tree.retained.change(leaf, -taken)
        leaf.cause = cause
        tree.ghosts.add(leaf, taken)
        if not by_capacity:
            tree.curve.forget(leaf.tick, ghost_blocks(leaf, tree.block_bytes))
        if whole:
            parent = leaf.parent
            if parent is not None and parent.namespace is not None:
                tree.count_head(leaf, -1)
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
