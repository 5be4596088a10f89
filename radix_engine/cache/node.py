"""A node of the radix tree: an edge (its token run and blocks) and where it ends."""

from __future__ import annotations

from array import array

from radix_engine.cache.token_run import TOKEN_BYTES, token_array


class Node:
    """A run of whole blocks below ``parent``. The root has an empty run and no parent.

    ``children`` are keyed by the run of their first block, which no two children share, so a walk
    needs one dictionary look-up an edge. ``pins`` counts the leases that end at this node or below.
    ``tick`` orders accesses (the cache's own counter); ``last_used`` is the same access in seconds.
    """

    __slots__ = ("blocks", "children", "hits", "last_used", "parent", "pins", "run", "tick")

    def __init__(self, run: bytes, blocks: array[int], parent: Node | None) -> None:
        self.run = run
        self.blocks = blocks
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.pins = 0
        self.tick = 0
        self.last_used = 0.0
        self.hits = 0

    @property
    def num_tokens(self) -> int:
        """Tokens on this edge."""
        return len(self.run) // TOKEN_BYTES


def new_root(now: float) -> Node:
    """The start of an empty tree."""
    root = Node(b"", token_array(), None)
    root.last_used = now
    return root


def split(node: Node, at_bytes: int, block_bytes: int) -> Node:
    """Cut the edge after ``at_bytes`` (whole blocks) and return the new upper node.

    ``node`` stays the lower part, so that leases that end at it still do; the upper part is pinned
    by all of them. Cost: one copy of the run.
    """
    parent = node.parent
    if parent is None or not 0 < at_bytes < len(node.run) or at_bytes % block_bytes:
        raise ValueError(f"a run of {len(node.run)} bytes cannot be split at {at_bytes}")
    cut = at_bytes // block_bytes
    upper = Node(node.run[:at_bytes], node.blocks[:cut], parent)
    upper.pins, upper.tick = node.pins, node.tick
    upper.last_used, upper.hits = node.last_used, node.hits
    parent.children[node.run[:block_bytes]] = upper
    node.run = node.run[at_bytes:]
    node.blocks = node.blocks[cut:]
    node.parent = upper
    upper.children[node.run[:block_bytes]] = node
    return upper
