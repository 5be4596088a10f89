"""Pinning a matched path for a request, and giving it back."""

from __future__ import annotations

from radix_engine.cache.block_pool import OwnershipError
from radix_engine.cache.interface import StaleMatch
from radix_engine.cache.lease import Lease, Match
from radix_engine.cache.node import Node, first_block
from radix_engine.cache.token_run import TOKEN_BYTES
from radix_engine.cache.tree import Tree


def unpinned_tokens(match: Match) -> int:
    """Matched tokens, in whole blocks, that nobody pins yet. Cost: the depth down to the first
    pinned node."""
    node = match.node
    end = match.num_tokens - match.copy_rows
    while node.parent is not None and not node.pins:
        node = node.parent
    return end - min(end, node.end if node.parent is not None else 0)


def take(tree: Tree, match: Match, priority: int) -> Lease:
    """Pin the matched path, splitting the edge it ends in. Cost: O(depth), and one copy when it
    splits."""
    if match.version != tree.version:
        raise StaleMatch(f"match of version {match.version}, the tree is at {tree.version}")
    seen, end = match.seen_node, match.node
    reach = seen.start + match.seen_bytes // TOKEN_BYTES
    if match.inside_bytes < len(end.run):
        end = tree.split(end, match.inside_bytes)
        tree.version += 1
    while not end.run and end.parent is not None:
        end = end.parent  # a lease that covers nothing of a namespace does not hold on to it
    if reach <= end.end:
        seen = end  # what was known ends here, where the edge has just been cut
    if tree.is_leaf(end):
        tree.leaves.discard(end)
    top: Node | None = None
    node = end
    while (parent := node.parent) is not None:
        if not node.pins:
            top = node
        node.pins += 1
        node.hits += 1
        node = parent
    if top is not None:
        tree.evictable -= (end.end - top.start) // tree.block_size
    lease = Lease(end, tree.root, end.end, match.namespace, match.public_tokens, priority)
    tree.leaves.rule.begun(lease, seen, reach, tree.clock())
    return lease


def take_again(tree: Tree, lease: Lease) -> Lease:
    """A second lease on what a lease covers, all of it computed. Cost: O(depth)."""
    # Below what is in flight there is only more of it, so the end tells for the whole path.
    if lease.released or lease.in_flight_tokens or lease.node.in_flight:
        raise OwnershipError("only what a lease holds, and what is computed, can be leased again")
    node = lease.node
    while node.parent is not None:  # nothing becomes pinned that was not
        node.pins += 1
        node.hits += 1
        node = node.parent
    branch = Lease(
        lease.node,
        lease.root,
        lease.num_tokens,
        lease.namespace,
        lease.public_tokens,
        lease.priority,
    )
    tree.leaves.rule.forked(branch, lease, tree.clock())
    return branch


def sole_tokens(lease: Lease) -> int:
    """Tokens at the end of a lease's path that no other lease pins. Cost: O(depth)."""
    node, tokens = lease.node, 0
    while node.parent is not None and node.pins == 1:
        tokens += node.num_tokens
        node = node.parent
    return tokens


def give_back(tree: Tree, lease: Lease) -> None:
    """Unpin the path, which counts as used just now. The lease announces nothing any more. Cost:
    O(depth)."""
    lease.released = True
    end = lease.node
    if end.pins == 1 and isinstance(end.run, bytearray):
        end.run = bytes(end.run)
    if end is tree.root:
        tree.leaves.rule.ended(lease, tree.clock())
        return
    tick, now, size = tree.next_tick(), tree.clock(), tree.block_size
    # The blocks of the path by the tick they had, for the order of all blocks by last use.
    groups: list[tuple[int, int]] = []
    top: Node | None = None
    node, last, group_end = end, end.tick, end.end
    edge = group_end
    while (parent := node.parent) is not None:
        if node.tick != last:
            groups.append((last, (group_end - edge) // size))
            last, group_end = node.tick, edge
        pins = node.pins = node.pins - 1
        if not pins:
            top = node
        node.tick = tick
        node.last_used = now
        edge = node.start
        if node.run:  # a namespace is entered by name only
            parent.hot = node
        node = parent
    if node is not tree.root:
        tree.leaves.rule.ended(lease, now)
        _drop_unpinned(tree, end)
        return
    groups.append((last, group_end // size))
    tree.curve.touch(groups, tick, end.end // size)
    if top is not None:
        tree.evictable += (end.end - top.start) // size
    tree.leaves.rule.ended(lease, now)
    if tree.is_leaf(end):
        tree.leaves.add(end, now)


def pin_step(tree: Tree, node: Node) -> None:
    """Pin a node right below a pinned path."""
    if not node.pins:
        if tree.is_leaf(node):
            tree.leaves.discard(node)
        tree.evictable -= len(node.blocks)
    node.pins += 1


def top_of(node: Node) -> Node:
    """The root of the tree that a node is in. Cost: O(depth)."""
    while node.parent is not None:
        node = node.parent
    return node


def path_to(node: Node) -> list[Node]:
    """A node and those above it, up to, but without, the root."""
    path = []
    while node.parent is not None:
        path.append(node)
        node = node.parent
    return path


def _drop_unpinned(tree: Tree, end: Node) -> None:
    """In a detached tree nobody can find an unpinned node: its blocks are free at once."""
    node = end
    while (parent := node.parent) is not None:
        if not node.pins:
            free_blocks(tree, node)
            del parent.children[first_block(node, tree.block_bytes)]
            parent.stored_children -= 1
            parent.hot = None
            node.parent = None
        node = parent
    if not node.children and node in tree.detached:
        tree.detached.remove(node)


def free_blocks(tree: Tree, node: Node) -> None:
    """Free all blocks of a node, those in flight as never computed."""
    computed = len(node.blocks) - node.in_flight
    if node.in_flight:
        tree.pool.withdraw(node.blocks[computed:])
        tree.counters.withdrawn_blocks += node.in_flight
        node.in_flight = 0
    tree.pool.free_from_tree(node.blocks[:computed])
    del node.blocks[:]
