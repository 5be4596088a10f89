"""The tree as a subscriber to events needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from radix_engine.cache.block_hash import HASH_BYTES
from radix_engine.cache.events import ALL, EventStream, Snapshot, Stored
from radix_engine.cache.hash_chain import chain_before
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.tree import Tree

Entry = tuple[Namespace, bytes, bytes, Sequence[int], bytes]
"""Namespace, parent hash, run, block ids and joined hashes of blocks that are stored."""


def snapshot_of(tree: Tree, stream: EventStream) -> Snapshot:
    """All computed blocks in the stream's scope, parents first. Cost: O(nodes x depth, blocks)."""
    return snapshot(stream, _entries(tree))


def snapshot(stream: EventStream, entries: Iterable[Entry]) -> Snapshot:
    """What ``stream`` would have told of these entries: all computed blocks, parents first.

    Entries that are out of its scope, or empty, are left out. To be called on the cache's thread,
    so that nothing changes meanwhile. Raises ValueError when the stream has ended. Cost: O(blocks).
    """
    if stream.ended:
        raise ValueError("this stream has ended; subscribe again, then take a snapshot")
    sequence = stream.next_sequence - 1
    whole = stream.scope is ALL
    stored = [
        Stored(
            0,
            namespace,
            parent,
            run,
            tuple(blocks) if whole else (),
            hashes,
            stream=stream.identity,
        )
        for namespace, parent, run, blocks, hashes in entries
        if hashes and stream.covers(namespace)
    ]
    return Snapshot(sequence, stored, stream=stream.identity)


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
