"""The radix tree and what is counted along with it: the part that all operations share.

A change of shape goes through here, so that the counts of stored children, the leaves that can be
evicted, the ghosts and the orders of children follow it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable

from radix_engine.cache.block_pool import BlockPool
from radix_engine.cache.child_order import FEW, ChildOrder
from radix_engine.cache.events import EventHub
from radix_engine.cache.eviction import EvictionRule, LeafIndex
from radix_engine.cache.ghosts import Ghosts
from radix_engine.cache.interface import CacheCounters
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node, first_block, new_namespace, new_root, split
from radix_engine.cache.reuse_curve import ReuseCurve
from radix_engine.cache.token_run import TOKEN_BYTES


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
        self.ghosts = Ghosts(ghost_blocks, self.block_bytes, self.curve.forget, self.destroy)
        # How many stored branches begin with a block, by tenant: to tell a miss from a miss in the
        # wrong one of a tenant's namespaces.
        self.heads: dict[str, Counter[tuple[int, bytes]]] = {}
        self.events: EventHub | None = None
        self.retained_blocks = 0
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
        parent.children[run[: self.block_bytes]] = child
        self.child_stored(child)
        return child

    def child_stored(self, node: Node) -> None:
        """A node got its first block. Its parent is pinned."""
        self.note(node)
        parent = node.parent
        if parent is not None and parent.namespace is not None:
            self.count_head(parent, node, 1)
        while parent is not None:
            parent.stored_children += 1
            if parent.run or parent.stored_children > 1:
                return
            parent = parent.parent  # a namespace holds blocks from now on

    def child_emptied(self, node: Node) -> None:
        """A node lost its last block; its parent may be a leaf from now on."""
        parent = node.parent
        if parent is not None:
            if parent.order is not None:
                parent.order.note(first_block(node, self.block_bytes))
            if parent.namespace is not None:
                self.count_head(parent, node, -1)
        while parent is not None:
            parent.stored_children -= 1
            if parent.stored_children:
                return
            if parent.run:
                if parent.blocks and not parent.pins:
                    self.leaves.add(parent, self.clock())
                return
            parent = parent.parent

    def destroy(self, node: Node) -> None:
        """Take a node without blocks and children out; a namespace that is then empty, too.

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

    def usable(self, child: Node | None) -> bool:
        """Whether rows of the child's first block may be copied: it is in memory and computed."""
        return child is not None and len(child.blocks) > child.in_flight

    def note(self, node: Node) -> None:
        """The node's first block has come, gone, or been computed."""
        parent = node.parent
        if parent is not None and parent.order is not None:
            parent.order.note(first_block(node, self.block_bytes))

    def nearest_child(self, node: Node, block: bytes) -> tuple[Node, int] | None:
        """The usable child that shares most leading tokens with ``block``; and bytes shared.

        Cost: O(log children).
        """
        children = node.children
        order = self._order(node)
        if order is not None:
            found = order.nearest(block)
            return None if found is None else (children[found[0]], found[1])
        best: tuple[Node, int] | None = None
        for key, child in children.items():
            if key[:TOKEN_BYTES] == block[:TOKEN_BYTES] and self.usable(child):
                shared = shared_tokens_bytes(block, key)
                if shared > (best[1] if best else 0):
                    best = child, shared
        return best

    def some_children(self, node: Node, most: int) -> list[Node]:
        """Up to ``most`` usable children, the same ones whoever used them last.

        Cost: O(log children).
        """
        order = self._order(node)
        keys = sorted(self._usable_keys(node)) if order is None else order.first(most)
        return [node.children[key] for key in keys[:most]]

    def _order(self, node: Node) -> ChildOrder | None:
        """The order of a node's usable children; None where they are few."""
        if node.order is None and len(node.children) > FEW:
            children = node.children  # not the node: that would be a circle of references
            usable = self._usable_keys(node)
            node.order = ChildOrder(usable, lambda key: self.usable(children.get(key)))
        return node.order

    def _usable_keys(self, node: Node) -> list[bytes]:
        return [
            key
            for key, child in node.children.items()
            if child.namespace is None and self.usable(child)
        ]

    def _is_attached(self, namespace_node: Node) -> bool:
        # An old root need not be among ``detached``: a lease of nothing may yet publish below it.
        node: Node | None = namespace_node
        while node is not None and node.parent is not None:
            node = node.parent
        return node is self.root

    def count_head(self, namespace_node: Node, node: Node, change: int) -> None:
        """A namespace of the attached tree has one more stored branch, ``node``, or one less."""
        namespace = namespace_node.namespace
        assert namespace is not None
        if namespace.tenant is None or not self._is_attached(namespace_node):
            return
        heads = self.heads.setdefault(namespace.tenant, Counter())
        head = (id(namespace_node.parent), bytes(node.run[: self.block_bytes]))
        heads[head] += change
        if not heads[head]:
            del heads[head]
            if not heads:
                del self.heads[namespace.tenant]


CURVE_SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)


def shared_tokens_bytes(block: bytes, key: bytes) -> int:
    """Bytes of the leading tokens that two blocks share. Cost: O(log block)."""
    low, high = 0, min(len(block), len(key)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if block[: middle * TOKEN_BYTES] == key[: middle * TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low * TOKEN_BYTES
