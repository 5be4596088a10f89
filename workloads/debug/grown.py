"""A large tree such as agents leave: tenants, their heads, conversations, turns, and what is tried
twice."""

from __future__ import annotations

import numpy as np

from radix_engine.cache import Namespace, PrefixCache, pack
from workloads.tree.build import BLOCK, TOKEN_BYTES, tokens

_TENANTS, _HEADS, _HEAD_BLOCKS = 8, 5, 64
_TURNS, _MOST_BLOCKS = 6, 3
_BATCH = 200  # conversations between two counts of the nodes


def grow(cache: PrefixCache, nodes: int, seed: int = 0) -> int:
    """Store conversations until the tree has so many nodes, the evicted ones that it remembers
    among them; how many there are. The pool and its ghosts must have room for as many. Cost: some
    tens of microseconds a node."""
    rng = np.random.default_rng(seed)
    spaces = [Namespace(tenant=f"tenant-{number}") for number in range(_TENANTS)]
    heads = [tokens(rng, _HEAD_BLOCKS * BLOCK) for _ in range(_TENANTS * _HEADS)]
    before, found = 0, count_nodes(cache)
    while found < nodes:
        for _ in range(_BATCH):
            head = int(rng.integers(len(heads)))
            _converse(cache, spaces[head % _TENANTS], heads[head], rng)
        before, found = found, count_nodes(cache)
        if found <= before:
            raise ValueError(f"the pool has no room for {nodes} nodes: {found} are all it keeps")
    return found


def count_nodes(cache: PrefixCache) -> int:
    """All nodes there are. Cost: O(nodes)."""
    count, todo = 0, [cache.root]
    while todo:
        node = todo.pop()
        count += 1
        todo.extend(node.children.values())
    return count


def _converse(cache: PrefixCache, space: Namespace, head: bytes, rng: np.random.Generator) -> None:
    run = head
    for turn in range(_TURNS):
        before = run
        run = before + tokens(rng, BLOCK * int(rng.integers(1, _MOST_BLOCKS + 1)))
        _store(cache, space, run)
        if turn % 2:
            _store(cache, space, before + tokens(rng, BLOCK))


def _store(cache: PrefixCache, space: Namespace, run: bytes) -> None:
    lease = cache.lease(cache.match(run + pack([0]), space))
    rest = run[lease.num_tokens * TOKEN_BYTES :]
    blocks = cache.allocate(len(rest) // (BLOCK * TOKEN_BYTES))
    if blocks is None:
        raise ValueError("the pool is too small for one conversation")
    cache.publish(lease, rest, blocks)
    cache.release(lease)
