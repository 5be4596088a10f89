"""The chained hashes of what a node stores, and the event that tells of it."""

from __future__ import annotations

from radix_engine.cache.block_hash import HASH_BYTES, chain_start, continuation_start
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node
from radix_engine.cache.tree import Tree


def tell_stored(tree: Tree, node: Node, first: int) -> None:
    """The blocks of a node from index ``first`` on are computed: an event, if anyone listens."""
    hub = tree.events
    if hub is None:
        return
    namespace, parent = chain_before(node)
    if node.hashes:
        parent = node.hashes[-HASH_BYTES:]
    step = tree.block_bytes
    run = bytes(node.run[first * step : len(node.blocks) * step])
    node.hashes += hub.stored(namespace, parent, run, node.blocks[first:])


def chain_before(node: Node) -> tuple[Namespace, bytes]:
    """A node's namespace, and the hash that its first block's is chained to. Cost: O(depth)."""
    parent = node.parent
    assert parent is not None
    above: Node | None = parent
    while above is not None and above.namespace is None:
        above = above.parent
    assert above is not None
    namespace = above.namespace
    assert namespace is not None
    if parent is not above:
        return namespace, parent.hashes[-HASH_BYTES:]
    public = parent.parent
    if public is None or public.parent is None:
        return namespace, chain_start(namespace)
    return namespace, continuation_start(public.hashes[-HASH_BYTES:], namespace)
