"""The tree as a subscriber to events needs it."""

from __future__ import annotations

from collections.abc import Iterator

from radix_engine.cache.block_hash import HASH_BYTES
from radix_engine.cache.events import Entry, EventStream, Snapshot, snapshot
from radix_engine.cache.storing import chain_before
from radix_engine.cache.tree import Tree


def snapshot_of(tree: Tree, stream: EventStream) -> Snapshot:
    """All computed blocks in the stream's scope, parents first. Cost: O(nodes x depth, blocks)."""
    return snapshot(stream, _entries(tree))


def _entries(tree: Tree) -> Iterator[Entry]:
    todo = [tree.root]
    while todo:
        node = todo.pop()
        todo.extend(node.children.values())
        if node.hashes:
            namespace, parent = chain_before(node)
            count = len(node.hashes) // HASH_BYTES
            run = bytes(node.run[: count * tree.block_bytes])
            yield namespace, parent, run, node.blocks[:count], node.hashes
