"""The part of the audit that counts again what is kept beside the tree to find things in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from radix_engine.cache.block_hash import HASH_BYTES
from radix_engine.cache.child_order import ChildOrder
from radix_engine.cache.node import Node, begins_in_flight, first_block, ghost_blocks, usable
from radix_engine.cache.tree import Tree


def index_problems(tree: Tree, attached: Sequence[Node]) -> Iterator[str]:
    """What is wrong with heads, orders of children, the ghosts' list, hashes and marks, one line
    each. ``attached``: all nodes of the tree. Cost: O(nodes log nodes)."""
    yield from _head_problems(tree, attached)
    yield from _ghost_list_problems(tree, attached)
    for node in [tree.root, *attached]:
        name = f"the node at token {node.start}"
        if node.hot is not None and node.hot.parent is not node:
            yield f"{name} has a child that was used last and is none"
        wrong = _is_wrong(
            node.order, [key for key, child in node.children.items() if usable(child)]
        )
        flying = [key for key, child in node.children.items() if begins_in_flight(child)]
        if wrong or _is_wrong(node.in_flight_order, flying):
            yield f"{name} has an order of children that is not theirs"
        hashes = len(node.blocks) - node.in_flight if tree.events is not None else 0
        if len(node.hashes) != hashes * HASH_BYTES:
            yield f"{name} has {len(node.hashes)} bytes of hashes for {hashes} blocks"
        if node.spared != (node in tree.leaves.spared):
            yield f"{name} is spared, or is not, and the index says otherwise"


def _is_wrong(order: ChildOrder | None, keys: list[bytes]) -> bool:
    return order is not None and order.first(len(keys) + 1) != sorted(keys)


def _head_problems(tree: Tree, attached: Sequence[Node]) -> Iterator[str]:
    heads: dict[str, Counter[tuple[int, bytes]]] = {}
    for node in attached:
        space = node.parent.namespace if node.parent is not None else None
        if space is None or space.tenant is None or space.salt is not None or not usable(node):
            continue
        assert node.parent is not None
        head = (id(node.parent.parent), first_block(node, tree.block_bytes))
        heads.setdefault(space.tenant, Counter())[head] += 1
    if heads != tree.heads:
        yield "the heads of the tenants' branches are not those that are stored"


def _ghost_list_problems(tree: Tree, attached: Sequence[Node]) -> Iterator[str]:
    """Every ghost must be listed, or stand above one that is, with which it will go."""
    listed = tree.ghosts.listed()
    known = set(attached)
    if not known.issuperset(listed) or len(set(listed)) != len(listed):
        yield "the list of ghosts names a node twice, or one that is not in the tree"
    found: set[Node] = set()
    for node in listed:
        at: Node | None = node
        while at is not None and at not in found:
            found.add(at)
            at = at.parent
    for node in attached:
        if node.run and ghost_blocks(node, tree.block_bytes) and node not in found:
            yield f"the ghost at token {node.start} is in no list"
