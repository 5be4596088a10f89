"""Blocks in flight: in the tree from admission, computed by the step that is about to run.

::

    announce ----> in flight ----> commit: computed, like any other
                       |
                       +---------> withdraw: out of the tree; what others built on it is detached
"""

from __future__ import annotations

from radix_engine.cache.block_pool import OwnershipError
from radix_engine.cache.lease import Lease
from radix_engine.cache.leasing import free_blocks, top_of
from radix_engine.cache.node import Node, first_block, new_root
from radix_engine.cache.storing import tell_stored
from radix_engine.cache.tree import Tree


def commit(tree: Tree, lease: Lease) -> None:
    """What the lease announced is computed. Cost: O(nodes and blocks announced).

    Raises OwnershipError, and changes nothing, where it stands on what another lease has announced
    and not committed yet: within a step owners commit before those who attached.
    """
    if not lease.in_flight_tokens:
        return
    attached = lease.root is tree.root
    nodes = _own_nodes(tree, lease)
    above = nodes[-1].parent
    while above is not None and not above.run:
        above = above.parent
    if above is not None and above.in_flight:
        raise OwnershipError("what this lease stands on is in flight: commit that first")
    for node in reversed(nodes):
        computed = len(node.blocks) - node.in_flight
        tree.pool.commit(node.blocks[computed:])
        node.in_flight = 0
        node.cause = None
        if attached:
            tree.note(node)
            tell_stored(tree, node, computed)
    lease.in_flight_tokens = 0


def withdraw(tree: Tree, lease: Lease) -> None:
    """What the lease announced will not be computed.

    The lease ends where its computed part does. Where others have attached to what was announced,
    that part becomes a detached tree until they have let it go. Cost: O(depth and nodes announced).
    """
    if not lease.in_flight_tokens:
        return
    nodes = _own_nodes(tree, lease)
    cut = nodes[-1]
    computed = len(cut.blocks) - cut.in_flight
    if computed:  # the lease's own earlier part, grown in place
        above = tree.split(cut, computed * tree.block_bytes)
    else:
        assert cut.parent is not None
        above = cut.parent
    node, end = lease.node, above
    while node is not above:
        node.pins -= 1
        assert node.parent is not None
        node = node.parent
    while not end.run and end.parent is not None:  # a namespace that this lease entered
        end.pins -= 1
        end = end.parent
    attached = top_of(above) is tree.root
    _take_back(tree, [node for node in nodes if not node.pins], attached=attached)
    if cut.pins:
        _detach(tree, cut, above)
    lease.num_tokens -= lease.in_flight_tokens
    lease.in_flight_tokens = 0
    lease.node = end
    tree.version += 1


def _own_nodes(tree: Tree, lease: Lease) -> list[Node]:
    """The nodes that hold what the lease announced, deepest first."""
    nodes = []
    node, left = lease.node, lease.in_flight_tokens
    while left > 0:
        if node.run:
            left -= node.in_flight * tree.block_size
            nodes.append(node)
        assert node.parent is not None
        node = node.parent
    return nodes


def _take_back(tree: Tree, nodes: list[Node], *, attached: bool) -> None:
    """Free nodes in flight that nobody holds, deepest first; a ghost from before is one again."""
    sizes = [len(node.blocks) for node in nodes]
    for node in nodes:
        free_blocks(tree, node)
    for node, size in zip(nodes, sizes, strict=True):
        tree.child_emptied(node)
        if attached and node.cause is not None:
            tree.ghosts.add(node, size)
        else:
            tree.destroy(node)
    tree.ghosts.keep_budget()


def _detach(tree: Tree, cut: Node, above: Node) -> None:
    """Make what others hold of the announced part a tree of its own."""
    others = cut.pins
    _forget_heads(tree, cut)
    tree.child_emptied(cut)
    del above.children[first_block(cut, tree.block_bytes)]
    above.hot = None
    root = new_root(tree.clock())
    root.children[first_block(cut, tree.block_bytes)] = cut
    cut.parent = root
    tree.detached.append(root)
    _drop_ghosts(tree, cut)
    node = above
    while node.parent is not None:  # the lease itself still pins all of this
        node.pins -= others
        node = node.parent
    if not above.run and above.parent is not None and not above.children:
        tree.destroy(above)


def _forget_heads(tree: Tree, top: Node) -> None:
    """No namespace below this node is told of any more."""
    todo = list(top.children.values())
    while todo:
        node = todo.pop()
        if node.namespace is not None:
            for child in node.children.values():
                if child.blocks:
                    tree.count_head(node, child, -1)
        todo.extend(node.children.values())


def _drop_ghosts(tree: Tree, top: Node) -> None:
    """Destroy the ghosts below a node, and forget the uses of those that were in flight again."""
    todo, order = [top], []
    while todo:
        node = todo.pop()
        order.append(node)
        todo.extend(node.children.values())
    for node in reversed(order):
        if not node.blocks and node.run:
            blocks = len(node.run) // tree.block_bytes
            tree.ghosts.revived(node, blocks)
            tree.curve.forget(node.tick, blocks)
            tree.destroy(node)
        elif node.cause is not None:
            tree.curve.forget(node.tick, node.in_flight)
