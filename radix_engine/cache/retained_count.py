"""How many blocks are retained: of all, and of each tenant's prefixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from radix_engine.cache.node import Node


class RetainedCount:
    """``blocks``: of all. ``of``: by tenant; what is public, or nobody's in particular, under
    None."""

    def __init__(self) -> None:
        self.blocks = 0
        self.of: Counter[str | None] = Counter()

    def change(self, node: Node, by: int) -> None:
        """So many more blocks of a node are retained. Cost: O(depth)."""
        tenant = tenant_of(node)
        self.blocks += by
        self.of[tenant] += by
        if not self.of[tenant]:
            del self.of[tenant]

    def clear(self) -> None:
        """Nothing is retained."""
        self.blocks = 0
        self.of.clear()


def tenant_of(node: Node) -> str | None:
    """Whose prefixes a node belongs to. Cost: O(depth)."""
    above: Node | None = node
    while above is not None and above.namespace is None:
        above = above.parent
    return None if above is None or above.namespace is None else above.namespace.tenant


def by_tenant(nodes: Iterable[tuple[Node, int]]) -> Counter[str | None]:
    """Numbers of blocks of the nodes of one path, lowest node first, summed by tenant. Cost: O(1)
    a node."""
    sums: Counter[str | None] = Counter()
    pending = 0
    for node, blocks in nodes:
        pending += blocks
        if node.namespace is not None:
            sums[node.namespace.tenant] += pending
            pending = 0
    sums[None] += pending
    return sums
