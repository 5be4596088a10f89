"""Starting with an empty tree while requests run.

What running requests pin stays theirs in a detached tree, out of reach of new ones, and comes back
as their leases end. The tokens stay known as ghosts in the new tree.

All of it happens in one call, whose time grows with the tree. In pieces, eviction, leases and the
audit would have to know of trees that are half taken down, and a prompt that is stored again before
its ghost is made would meet it.
"""

from __future__ import annotations

from radix_engine.cache.node import Node, first_block, new_namespace, new_root
from radix_engine.cache.reason import Cause
from radix_engine.cache.token_run import token_array
from radix_engine.cache.tree import Tree


def flush(tree: Tree) -> int:
    """Empty the tree; returns the blocks freed at once. Cost: O(nodes and blocks)."""
    old = tree.root
    tree.root = new_root(tree.clock())
    tree.leaves.clear()
    tree.heads.clear()
    tree.ghosts.clear()
    tree.curve.clear()
    tree.evictable = 0
    freed = token_array()
    ghosts: list[Node] = []  # parents first
    todo = [(old, tree.root)]
    while todo:
        node, place = todo.pop()
        children, node.children = node.children, {}
        node.hot = node.order = node.in_flight_order = None
        node.stored_children = 0
        for key, child in children.items():
            if child.pins:
                node.children[key] = child
                node.stored_children += 1
            else:
                freed.extend(child.blocks)
            ghost = _ghost_of(child, place, tree.block_bytes)
            if ghost is not None:
                place.children[first_block(ghost, tree.block_bytes)] = ghost
                ghosts.append(ghost)
            if child.in_flight:
                _forget_below(child)
            elif ghost is not None:
                todo.append((child, ghost))
    tree.remember(ghosts)
    tree.pool.free_from_tree(freed)
    if old.children:
        tree.detached.append(old)
    tree.counters.flushes += 1
    tree.version += 1
    if tree.events is not None:
        tree.events.cleared()
    tree.ghosts.keep_budget()
    return len(freed)


def _ghost_of(node: Node, place: Node, block_bytes: int) -> Node | None:
    """What stays of a node in the new tree: itself, or a copy of what is computed where a lease
    still pins it."""
    cause = Cause.FLUSH if node.blocks else node.cause
    if node.pins:
        node.retained = 0
        node.hashes = b""
        if node.namespace is not None:
            return new_namespace(place, node.namespace)
        computed = (len(node.blocks) - node.in_flight) * block_bytes
        if not computed:
            return None
        ghost = Node(bytes(node.run[:computed]), token_array(), place, node.start)
    else:
        ghost = node
        ghost.parent = place
        ghost.blocks = token_array()
        ghost.tick = ghost.retained = ghost.stored_children = 0
        ghost.hashes = b""
    ghost.cause = cause
    return ghost


def _forget_below(node: Node) -> None:
    """Below what is in flight there is only more of it, and ghosts, which go."""
    todo = [node]
    while todo:
        node = todo.pop()
        node.children = {key: child for key, child in node.children.items() if child.pins}
        node.hot = node.order = node.in_flight_order = None
        node.stored_children = len(node.children)
        todo.extend(node.children.values())
