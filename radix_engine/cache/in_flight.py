"""Blocks in flight: in the tree from admission, computed by the step that is about to run.

::

    announce ----> in flight ----> commit: computed, like any other
                       |
                       +---------> withdraw: out of the tree; what others built on it is detached
"""

from __future__ import annotations

import logging

from radix_engine.cache.block_pool import OwnershipError
from radix_engine.cache.evicting import take_out_of_use
from radix_engine.cache.hash_chain import tell_stored
from radix_engine.cache.lease import Lease
from radix_engine.cache.leasing import free_blocks, give_back, path_to, top_of
from radix_engine.cache.node import Node, first_block, new_namespace, new_root
from radix_engine.cache.payload import check_payload, end_with
from radix_engine.cache.token_run import token_array
from radix_engine.cache.tree import Tree

logger = logging.getLogger(__name__)


def commit(tree: Tree, lease: Lease, payload: bytes) -> None:
    """What the lease announced is computed. Cost: O(nodes and blocks announced, payload).

    Raises OwnershipError, and changes nothing, where it stands on what another lease has announced
    and not committed yet: within a step owners commit before those who attached.
    """
    check_payload(payload, lease.in_flight_tokens)
    if not lease.in_flight_tokens:
        return
    attached = lease.root is tree.root
    nodes = _own_nodes(tree, lease)
    above = nodes[-1].parent
    while above is not None and not above.run:
        above = above.parent
    if above is not None and above.in_flight:
        raise OwnershipError("what this lease stands on is in flight: commit that first")
    done = 0
    for node in reversed(nodes):
        computed = len(node.blocks) - node.in_flight
        tree.pool.commit(node.blocks[computed:])
        if payload:
            size = node.in_flight * tree.block_bytes
            end_with(node, computed * tree.block_bytes, payload[done : done + size])
            done += size
        node.in_flight = 0
        node.cause = None
        if attached:
            if not computed:
                tree.child_computed(node)
                tree.count_head(node, 1)
            tell_stored(tree, node, computed)
    lease.in_flight_tokens = 0


def withdraw(tree: Tree, lease: Lease) -> None:
    """What the lease announced will not be computed.

    The lease ends where its computed part does. Where others have attached to what was announced,
    that part becomes a detached tree until they have let it go. What was a ghost before is one
    again. Cost: O(depth and nodes announced).
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
        _detach(tree, cut, above, attached=attached)
    tree.ghosts.keep_budget()
    lease.num_tokens -= lease.in_flight_tokens
    lease.in_flight_tokens = 0
    lease.node = end
    tree.version += 1


def release(tree: Tree, lease: Lease) -> None:
    """Withdraw what a lease announced, and give it back; see `PrefixCache.release`."""
    if lease.released:
        tree.counters.repeated_releases += 1
        logger.warning("a lease of %d tokens was released twice", lease.num_tokens)
        return
    withdraw(tree, lease)
    give_back(tree, lease)
    if tree.pool.quarantined and lease.root is tree.root:
        take_out_of_use(tree, reversed(path_to(lease.node)))


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


def _detach(tree: Tree, cut: Node, above: Node, *, attached: bool) -> None:
    """Make what others hold of the announced part a tree of its own."""
    others = cut.pins
    tree.child_emptied(cut)
    del above.children[first_block(cut, tree.block_bytes)]
    above.hot = None
    if attached:
        _keep_ghosts(tree, cut, above)
    root = new_root(tree.clock())
    root.children[first_block(cut, tree.block_bytes)] = cut
    cut.parent = root
    tree.detached.append(root)
    node = above
    while node.parent is not None:  # the lease itself still pins all of this
        node.pins -= others
        node = node.parent
    if not above.run and above.parent is not None and not above.children:
        tree.destroy(above)


def _keep_ghosts(tree: Tree, cut: Node, above: Node) -> None:
    """What was a ghost before, in the part that ``cut`` begins, is one again, below ``above``.

    Ghosts move there; of what others hold in flight a copy is made. Below what was never a ghost
    there is none.
    """
    copies: list[Node] = []  # parents first
    todo = [(cut, above)]
    while todo:
        node, place = todo.pop()
        if node.namespace is not None:
            copy = new_namespace(place, node.namespace)
        elif not node.blocks:  # with all below it
            tree.destroy(node)
            node.parent = place
            place.children[first_block(node, tree.block_bytes)] = node
            continue
        elif node.cause is not None:
            copy = Node(bytes(node.run), token_array(), place, node.start)
            copy.payload, copy.last_used = bytes(node.payload), node.last_used
            copy.cause, copy.tick = node.cause, node.tick
            place.children[first_block(copy, tree.block_bytes)] = copy
        else:
            continue
        copies.append(copy)
        todo.extend((child, copy) for child in node.children.values())
    tree.remember(copies)
