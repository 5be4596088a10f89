"""Sparing what waiting requests would hit: of what nobody retains it is evicted last."""

from __future__ import annotations

from collections.abc import Iterable

from radix_engine.cache.lease import Match
from radix_engine.cache.node import Node
from radix_engine.cache.tree import Tree


def spare(tree: Tree, matches: Iterable[Match]) -> None:
    """Spare what these matches cover, and nothing else any more. See `PrefixCache.spare`."""
    chosen: dict[Node, None] = {}
    for match in matches:
        if match.version == tree.version:
            node = _last_computed(match.node)
            if node.parent is not None:
                chosen[node] = None
    for node in [node for node in tree.leaves.spared if node not in chosen]:
        _change(tree, node, spared=False)
    for node in chosen:
        if not node.spared:
            _change(tree, node, spared=True)


def _last_computed(node: Node) -> Node:
    """The node where the computed part of a path ends: what is in flight may yet be withdrawn."""
    while node.parent is not None and node.in_flight == len(node.blocks):
        node = node.parent
    return node


def _change(tree: Tree, node: Node, *, spared: bool) -> None:
    """A leaf changes its place; another node has one as soon as it is a leaf."""
    is_leaf = tree.is_leaf(node)
    if is_leaf:
        tree.leaves.discard(node)
    tree.leaves.mark(node, spared=spared)
    if is_leaf:
        tree.leaves.add(node, tree.clock())
