"""The radix tree and what is counted along with it: the part that all operations share.

A change of shape goes through here, so that the counts of stored children, the leaves that can be
evicted, the ghosts and the orders of children follow it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from functools import partial

from radix_engine.cache.block_pool import BlockPool
from radix_engine.cache.child_order import FEW, ChildOrder
from radix_engine.cache.event_hub import EventHub
from radix_engine.cache.eviction import EvictionRule, LeafIndex
from radix_engine.cache.ghosts import Ghosts
from radix_engine.cache.interface import CacheCounters
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import (
    Node,
    begins_in_flight,
    first_block,
    ghost_blocks,
    new_namespace,
    new_root,
    split,
    usable,
)
from radix_engine.cache.retained_count import RetainedCount
from radix_engine.cache.reuse_curve import ReuseCurve
from radix_engine.cache.token_run import TOKEN_BYTES, shared_tokens_bytes


class Tree:
    """State and bookkeeping; `PrefixCache` is what others use.

    ``root`` has the namespaces as children. ``detached`` are roots of flushed or withdrawn trees
    that leases still pin; they hold only pinned nodes. ``evictable``: blocks that nobody pins.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        clock: Callable[[], float],
        rule: EvictionRule,
        ghost_blocks: int,
        *,
        by_age: bool,
    ) -> None:
        self.block_size = block_size
        self.block_bytes = block_size * TOKEN_BYTES
        self.clock = clock
        self.pool = BlockPool(num_blocks)
        self.counters = CacheCounters()
        self.root = new_root(clock())
        self.detached: list[Node] = []
        self.leaves = LeafIndex(rule, by_age=by_age)
        self.curve = ReuseCurve([max(1, int(num_blocks * share)) for share in CURVE_SHARES])
        rule.attach(partial(self.curve.hit_tokens.__getitem__, CURVE_SHARES.index(1.0)), num_blocks)
        self.ghosts = Ghosts(
            ghost_blocks, self.block_bytes, self.curve.forget, self.destroy, self._find_ghosts
        )
        # How many computed branches begin with a block, by tenant: to tell a miss from a miss in
        # the wrong one of a tenant's namespaces.
        self.heads: dict[str, Counter[tuple[int, bytes]]] = {}
        self.events: EventHub | None = None
        self.retained = RetainedCount()
        self.on_retained_emptied: Callable[[Node], None] = lambda leaf: None
        self.evictable = 0
        self.version = 0
        self.tick = 0

    def next_tick(self) -> int:
        """A new place at the end of the order of accesses."""
        self.tick += 1
        return self.tick

    def is_leaf(self, node: Node) -> bool:
        """Whether eviction may take blocks from this node of the attached tree."""
        return bool(node.blocks) and not node.pins and not node.stored_children

    def split(self, node: Node, at_bytes: int) -> Node:
        """Cut an edge; returns the upper node. See `node.split`."""
        was_leaf = self.is_leaf(node)
        if was_leaf:
            self.leaves.discard(node)
        upper = split(node, at_bytes, self.block_bytes)
        if node.spared:
            self.leaves.mark(upper, spared=True)
        if node.retained and not node.blocks:
            self.on_retained_emptied(node)  # retentions end where blocks do
        if was_leaf:
            leaf = node if node.blocks else upper
            self.leaves.add(leaf, self.clock())
        return upper

    def namespace_below(self, parent: Node, namespace: Namespace) -> Node:
        """Where a namespace continues below ``parent``; made where it is missing."""
        node = parent.children.get(namespace.key)
        if node is None:
            node = new_namespace(parent, namespace)
        return node

    def add_child(self, parent: Node, run: bytes, blocks: array[int], in_flight: int) -> Node:
        """A new node with blocks below ``parent``, which has no child that begins like it."""
        child = Node(run, blocks, parent, parent.end)
        child.in_flight = in_flight
        child.born = self.clock()
        parent.children[run[: self.block_bytes]] = child
        self.child_stored(child)
        return child

    def child_stored(self, node: Node) -> None:
        """A node got its first block, computed or in flight. Its parent is pinned."""
        parent = node.parent
        if parent is not None:
            order = parent.order if usable(node) else parent.in_flight_order
            if order is not None:
                order.note(first_block(node, self.block_bytes))
        while parent is not None:
            parent.stored_children += 1
            if parent.run or parent.stored_children > 1:
                return
            parent = parent.parent  # a namespace holds blocks from now on

    def child_emptied(self, node: Node) -> None:
        """A node lost its last block; its parent may be a leaf from now on."""
        parent = node.parent
        if node.spared:
            self._spare_above(node)
        if parent is not None and (parent.order or parent.in_flight_order) is not None:
            key = first_block(node, self.block_bytes)
            for order in (parent.order, parent.in_flight_order):
                if order is not None:
                    order.note_gone(key)
        while parent is not None:
            parent.stored_children -= 1
            if parent.stored_children:
                return
            if parent.run:
                if parent.blocks and not parent.pins:
                    self.leaves.add(parent, self.clock())
                return
            parent = parent.parent

    def _spare_above(self, node: Node) -> None:
        """A spared node was emptied: what is left of its path is spared from now on."""
        self.leaves.mark(node, spared=False)
        above = node.parent
        while above is not None and not above.run:
            above = above.parent
        if above is not None:
            self.leaves.mark(above, spared=True)

    def destroy(self, node: Node) -> None:
        """Take a node without blocks out, with all below it; a namespace that is then empty, too.

        The parent's order of children knows already: it lists only those with blocks.
        """
        parent = node.parent
        while parent is not None:
            key = first_block(node, self.block_bytes)
            del parent.children[key]
            node.parent = None
            if parent.hot is node:
                parent.hot = None
            if parent.namespace is None or parent.children:
                return
            node, parent = parent, parent.parent

    def remember(self, nodes: list[Node]) -> None:
        """Nodes without blocks, parents first, are ghosts from now on; a namespace among them that
        has nothing below it goes."""
        for node in reversed(nodes):
            if node.run:
                self.ghosts.add(node, len(node.run) // self.block_bytes)
            elif not node.children:
                self.destroy(node)

    def _find_ghosts(self) -> list[Node]:
        nodes: list[Node] = []
        todo = [self.root]
        while todo:
            node = todo.pop()
            todo.extend(node.children.values())
            if node.run and ghost_blocks(node, self.block_bytes):
                nodes.append(node)
        return nodes[::-1]

    def child_computed(self, node: Node) -> None:
        """A node's first block, which was in flight, has been computed."""
        parent = node.parent
        if parent is None or (parent.order is None and parent.in_flight_order is None):
            return
        key = first_block(node, self.block_bytes)
        if parent.order is not None:
            parent.order.note(key)
        if parent.in_flight_order is not None:
            parent.in_flight_order.note_gone(key)

    def nearest_child(self, node: Node, block: bytes) -> tuple[Node, int] | None:
        """The usable child that shares most leading tokens with ``block``; and bytes shared.

        Cost: O(log children).
        """
        order = self._order(node)
        found = _nearest(node, block, usable) if order is None else order.nearest(block)
        return None if found is None else (node.children[found[0]], found[1])

    def shared_in_flight(self, node: Node, block: bytes) -> int:
        """Bytes of the most leading tokens that ``block`` shares with a child whose first block is
        in flight. Cost: O(log children)."""
        order = node.in_flight_order
        if order is None and len(node.children) > FEW:
            order = node.in_flight_order = _order_of(node, begins_in_flight)
        found = _nearest(node, block, begins_in_flight) if order is None else order.nearest(block)
        return 0 if found is None else found[1]

    def some_children(self, node: Node, most: int) -> list[Node]:
        """Up to ``most`` usable children, the same ones whoever used them last.

        Cost: O(log children).
        """
        order = self._order(node)
        keys = sorted(_keys(node, usable)) if order is None else order.first(most)
        return [node.children[key] for key in keys[:most]]

    def _order(self, node: Node) -> ChildOrder | None:
        """The order of a node's usable children; None where they are few."""
        if node.order is None and len(node.children) > FEW:
            node.order = _order_of(node, usable)
        return node.order

    def _is_attached(self, namespace_node: Node) -> bool:
        # An old root need not be among ``detached``: a lease of nothing may yet publish below it.
        node: Node | None = namespace_node
        while node is not None and node.parent is not None:
            node = node.parent
        return node is self.root

    def count_head(self, node: Node, change: int) -> None:
        """The first block of a node has been computed, or is taken: where the node begins a branch
        of a namespace of the attached tree, that has one more, or one less.

        Of a namespace with a salt nobody is told: a salt keeps others, of the same tenant too, from
        finding out what was asked.
        """
        namespace_node = node.parent
        if namespace_node is None or (namespace := namespace_node.namespace) is None:
            return
        tenant = namespace.tenant
        if tenant is None or namespace.salt is not None or not self._is_attached(namespace_node):
            return
        heads = self.heads.setdefault(tenant, Counter())
        head = (id(namespace_node.parent), bytes(node.run[: self.block_bytes]))
        heads[head] += change
        if not heads[head]:
            del heads[head]
            if not heads:
                del self.heads[tenant]


CURVE_SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)


Kind = Callable[[Node | None], bool]


def _keys(node: Node, kind: Kind) -> list[bytes]:
    """The keys of a node's children of one kind; namespaces, which have no blocks, are of none."""
    return [key for key, child in node.children.items() if kind(child)]


def _order_of(node: Node, kind: Kind) -> ChildOrder:
    children = node.children  # not the node: that would be a circle of references
    return ChildOrder(_keys(node, kind), lambda key: kind(children.get(key)))


def _nearest(node: Node, block: bytes, kind: Kind) -> tuple[bytes, int] | None:
    """The key of the child of a kind that shares most with ``block``, and bytes shared, by looking
    at each."""
    best: tuple[bytes, int] | None = None
    for key, child in node.children.items():
        if key[:TOKEN_BYTES] == block[:TOKEN_BYTES] and kind(child):
            shared = shared_tokens_bytes(block, key)
            if shared > (best[1] if best else 0):
                best = key, shared
    return best
