"""The full audit: every block has exactly one owner, and the tree is what it claims to be.

It reports and changes nothing. Cost: O(blocks + nodes); the tests run it after each operation
and each step, and ``Engine.audit`` on request.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

from radix_engine.cache.block_pool import FREE, PRIVATE, TREE
from radix_engine.cache.lease import Lease
from radix_engine.cache.node import Node
from radix_engine.cache.prefix_cache import PrefixCache
from radix_engine.cache.token_run import TOKEN_BYTES


def audit(
    cache: PrefixCache, private: Iterable[array[int]], leases: Iterable[Lease] | None = None
) -> list[str]:
    """What is wrong, one line each; an empty list when all is well.

    ``private`` are the block ids of each request's private tail. With ``leases`` (all live ones),
    the pins of every node are counted again too.
    """
    problems: list[str] = []
    holders: Counter[int] = Counter()
    trees = [cache.root, *cache.detached]
    nodes = [node for root in trees for node in walk(root)]
    owners: list[tuple[int, str, Iterable[array[int]]]] = [
        (FREE, "the free list", [cache.pool.free_list()]),
        (PRIVATE, "a request", private),
        (TREE, "the tree", [node.blocks for node in nodes]),
    ]
    for owner, name, holdings in owners:
        for blocks in holdings:
            holders.update(blocks)
            problems += [
                f"block {block} is held by {name}, but the pool's books say otherwise"
                for block in blocks
                if cache.pool.owner_of(block) != owner
            ]
    for block in range(cache.pool.num_blocks):
        if holders[block] != 1:
            problems.append(f"block {block} has {holders[block]} owners")
    for node in nodes:
        problems += _node_problems(node, cache.block_size)
    problems += _index_problems(cache)
    if leases is not None:
        problems += _pin_problems(nodes, leases)
    return problems


def walk(root: Node) -> Iterator[Node]:
    """All nodes below a root, parents first."""
    todo = list(root.children.values())
    while todo:
        node = todo.pop()
        yield node
        todo.extend(node.children.values())


def _node_problems(node: Node, block_size: int) -> Iterator[str]:
    block_bytes = block_size * TOKEN_BYTES
    name = f"the node of {node.num_tokens} tokens at tick {node.tick}"
    if not node.run or len(node.run) != len(node.blocks) * block_bytes:
        yield f"{name} has {len(node.blocks)} blocks"
    parent = node.parent
    if parent is None or parent.children.get(node.run[:block_bytes]) is not node:
        yield f"{name} is not what its parent calls a child"
    elif parent.parent is not None and parent.pins < node.pins:
        yield f"{name} is pinned {node.pins} times, its parent {parent.pins}"
    if node.pins < 0:
        yield f"{name} is pinned {node.pins} times"


def _index_problems(cache: PrefixCache) -> Iterator[str]:
    attached = list(walk(cache.root))
    evictable = sum(len(node.blocks) for node in attached if not node.pins)
    if evictable != cache.evictable_blocks:
        yield f"{evictable} blocks are evictable, the cache counts {cache.evictable_blocks}"
    expected = {id(node) for node in attached if not node.pins and not node.children}
    indexed = [id(node) for node in cache.leaves.leaves()]
    if expected != set(indexed) or len(indexed) != len(expected):
        yield f"{len(expected)} leaves can be evicted, the index holds {len(indexed)}"
    for root in cache.detached:
        if any(not node.pins for node in walk(root)):
            yield "a flushed tree keeps a node that nobody pins"


def _pin_problems(nodes: list[Node], leases: Iterable[Lease]) -> Iterator[str]:
    pins: Counter[int] = Counter()
    for lease in leases:
        node, tokens = lease.node, 0
        while node.parent is not None:
            pins[id(node)] += 1
            tokens += node.num_tokens
            node = node.parent
        if tokens != lease.num_tokens:
            yield f"a lease of {lease.num_tokens} tokens ends {tokens} tokens deep"
    for node in nodes:
        if node.pins != pins[id(node)]:
            yield f"a node is pinned {node.pins} times, {pins[id(node)]} leases end there or below"
