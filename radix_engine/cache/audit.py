"""The full audit: every block has exactly one owner, and the tree is what it claims to be.

It reports and changes nothing. Cost: O(blocks + nodes log nodes); the tests run it after each
operation and each step, and ``Engine.audit`` on request.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from radix_engine.cache.index_audit import index_problems
from radix_engine.cache.lease import Lease
from radix_engine.cache.node import Node, first_block, ghost_blocks
from radix_engine.cache.ownership import Holdings, ownership_problems
from radix_engine.cache.retained_count import tenant_of
from radix_engine.cache.retention import Retention
from radix_engine.cache.tree import Tree


def audit(
    tree: Tree,
    private: Iterable[array[int]],
    leases: Iterable[Lease] | None,
    retentions: Sequence[Retention],
) -> list[str]:
    """What is wrong, one line each; an empty list when all is well.

    ``private`` are the block ids of each request's private tail. With ``leases`` (all live ones),
    the pins of every node are counted again too.
    """
    attached = list(walk(tree.root))
    nodes = attached + [node for root in tree.detached for node in walk(root)]
    problems = ownership_problems(tree.pool, holdings(tree, private))
    for node in nodes:
        problems += _node_problems(node, tree.block_size, tree.block_bytes)
    problems += _leaf_problems(tree, attached)
    problems += index_problems(tree, attached)
    problems += _retention_problems(tree, attached, retentions)
    if leases is not None:
        problems += _pin_problems(nodes, leases)
    return problems


def holdings(tree: Tree, private: Iterable[array[int]]) -> Holdings:
    """Who holds which blocks, by the holders' own word. Cost: O(nodes and blocks)."""
    nodes = [node for root in (tree.root, *tree.detached) for node in walk(root)]
    return Holdings(
        private=list(private),
        in_tree=[node.blocks[: len(node.blocks) - node.in_flight] for node in nodes],
        in_flight=[node.blocks[len(node.blocks) - node.in_flight :] for node in nodes],
    )


def walk(root: Node) -> Iterator[Node]:
    """All nodes below a root, parents first."""
    todo = list(root.children.values())
    while todo:
        node = todo.pop()
        yield node
        todo.extend(node.children.values())


def _node_problems(node: Node, block_size: int, block_bytes: int) -> Iterator[str]:
    name = f"the node at token {node.start} of {node.num_tokens} tokens"
    parent = node.parent
    if parent is None or parent.children.get(first_block(node, block_bytes)) is not node:
        yield f"{name} is not what its parent calls a child"
        return
    if len(node.run) % block_bytes or bool(node.run) == (node.namespace is not None):
        yield f"{name} holds no whole blocks"
    if ghost_blocks(node, block_bytes) < 0 or node.in_flight > len(node.blocks):
        yield f"{name} has {len(node.blocks)} blocks, {node.in_flight} of them in flight"
    if node.start != parent.end and not _was_withdrawn(parent):
        yield f"{name} follows a parent that ends at {parent.end}"
    if ghost_blocks(node, block_bytes) and (node.pins or node.stored_children):
        yield f"{name} is in use and has a ghost part"
    if parent.parent is not None and parent.pins < node.pins:
        yield f"{name} is pinned {node.pins} times, its parent {parent.pins}"
    if node.pins < 0 or (parent.parent is not None and parent.retained < node.retained):
        yield f"{name} is pinned {node.pins} and retained {node.retained} times"
    stored = sum(bool(child.blocks or child.stored_children) for child in node.children.values())
    if node.stored_children != stored:
        yield f"{name} has {stored} children with blocks, it counts {node.stored_children}"
    if node.namespace is not None and not node.children:
        yield f"{name} is a namespace and empty"


def _was_withdrawn(root: Node) -> bool:
    """Whether what hangs below this root was cut off in the middle of a path."""
    return root.parent is None and all(child.run for child in root.children.values())


def _leaf_problems(tree: Tree, attached: list[Node]) -> Iterator[str]:
    evictable = sum(len(node.blocks) for node in attached if not node.pins)
    if evictable != tree.evictable:
        yield f"{evictable} blocks are evictable, the cache counts {tree.evictable}"
    if any(
        not node.pins and tree.pool.before_quarantined(node.blocks) < len(node.blocks)
        for node in attached
    ):
        yield "a block in quarantine counts as evictable"
    expected = {id(node) for node in attached if tree.is_leaf(node)}
    indexed = [id(node) for node in tree.leaves.leaves()]
    if expected != set(indexed) or len(indexed) != len(expected):
        yield f"{len(expected)} leaves can be evicted, the index holds {len(indexed)}"
    ghosts = sum(ghost_blocks(node, tree.block_bytes) for node in attached if node.run)
    if ghosts != tree.ghosts.blocks or ghosts > tree.ghosts.budget:
        yield f"{ghosts} blocks are ghosts, the cache counts {tree.ghosts.blocks}"
    for root in tree.detached:
        if any(not node.pins for node in walk(root)):
            yield "a detached tree keeps a node that nobody pins"


def _retention_problems(
    tree: Tree, attached: list[Node], retentions: Sequence[Retention]
) -> Iterator[str]:
    counts: Counter[int] = Counter()
    for retention in retentions:
        node = retention.node
        while node.parent is not None:
            counts[id(node)] += 1
            node = node.parent
    for node in attached:
        if node.retained != counts[id(node)]:
            yield f"a node is retained {node.retained} times, by {counts[id(node)]} retentions"
    retained = [node for node in attached if node.retained]
    blocks = sum(len(node.blocks) for node in retained)
    if blocks != tree.retained.blocks:
        yield f"{blocks} blocks are retained, the cache counts {tree.retained.blocks}"
    of: Counter[str | None] = Counter()
    for node in retained:
        of[tenant_of(node)] += len(node.blocks)
    if +of != tree.retained.of:
        yield "the blocks retained of each tenant's are not as many as the cache counts"


def _pin_problems(nodes: list[Node], leases: Iterable[Lease]) -> Iterator[str]:
    pins: Counter[int] = Counter()
    for lease in leases:
        node, tokens = lease.node, 0
        while node.parent is not None:
            pins[id(node)] += 1
            tokens += node.num_tokens
            node = node.parent
        if node is lease.root and tokens != lease.num_tokens:  # else it is broken
            yield f"a lease of {lease.num_tokens} tokens ends {tokens} tokens deep"
    for node in nodes:
        if node.pins != pins[id(node)]:
            yield f"a node is pinned {node.pins} times, {pins[id(node)]} leases end there or below"
