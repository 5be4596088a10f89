"""Which leaves eviction would take next, in order, without taking any."""

from __future__ import annotations

from radix_engine.cache.node import Node
from radix_engine.cache.tree import Tree


def next_victims(tree: Tree, most: int) -> list[Node]:
    """The nodes that would lose their blocks first, with parents that become leaves on the way.

    A rehearsal: each victim leaves the index of leaves and comes back at the end, which no rule
    takes for a use. Cost: O(log leaves) for each victim.
    """
    leaves, now = tree.leaves, tree.clock()
    taken: list[Node] = []
    emptied: dict[Node, int] = {}  # by parent, children that hold blocks no longer
    try:
        while len(taken) < most and (leaf := leaves.victim(now)) is not None:
            leaves.discard(leaf)
            taken.append(leaf)
            parent = _new_leaf(leaf, emptied)
            if parent is not None:
                leaves.add(parent, now)
    finally:
        for parent in emptied:
            if parent not in taken and _is_bare(parent, emptied):
                leaves.discard(parent)
        for leaf in taken:
            if not emptied.get(leaf):
                leaves.add(leaf, now)
    return taken


def _new_leaf(leaf: Node, emptied: dict[Node, int]) -> Node | None:
    """The parent, where nothing below it would hold blocks any more."""
    above = leaf.parent
    while above is not None:
        emptied[above] = emptied.get(above, 0) + 1
        if emptied[above] < above.stored_children:
            return None
        if above.run:
            return above if _is_bare(above, emptied) else None
        above = above.parent  # a namespace without blocks below it
    return None


def _is_bare(node: Node, emptied: dict[Node, int]) -> bool:
    """Whether a node would be a leaf after that."""
    return (
        bool(node.run and node.blocks)
        and not node.pins
        and (emptied.get(node, 0) >= node.stored_children)
    )
