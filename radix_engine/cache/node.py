"""A node of the radix tree: an edge (its token run and blocks) and where it ends."""

from __future__ import annotations

from array import array
from typing import Any

from radix_engine.cache.block_hash import HASH_BYTES
from radix_engine.cache.child_order import ChildOrder
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.reason import Cause
from radix_engine.cache.token_run import TOKEN_BYTES, token_array


class Node:
    """A run of whole blocks below ``parent``.

    ::

        run     |  computed blocks  |  in flight  |  ghost: tokens whose blocks were evicted  |
        blocks  [ . . . . . . . . . . . . . . . . ]

    Only where a node's run is wholly in memory may a node below it hold blocks, and a pinned node
    has no ghost part. ``children`` are keyed by the run of their first block, which no two share,
    so a walk needs one look-up an edge. A namespace is a node with an empty run, keyed by the
    namespace's own key. The root has an empty run and no parent.

    ``start``: tokens before the run. ``pins``: the leases that end at this node or below.
    ``stored_children``: the children that hold blocks (a namespace: whose children do). ``tick``
    orders the ends of accesses (the cache's own counter; 0 before the first one has ended);
    ``last_used`` is the same in seconds, and ``born`` is when it was stored. ``hits``: the leases
    that were served through this node.
    ``hot``: the child that was used last. ``order`` and ``in_flight_order``: where there are many,
    the children to copy rows from, and those whose first block is in flight. ``rank``, ``place``,
    ``older`` and ``newer`` belong to the eviction rule, ``spared`` to the index of leaves,
    ``older_ghost`` and ``newer_ghost`` to the ghosts, ``retained`` (how many retentions cover it)
    to the retentions. ``payload``: 4 bytes a token that go with the run, ``hashes``: 32 bytes a
    block for events, both empty where unused.
    """

    __slots__ = (
        "blocks",
        "born",
        "cause",
        "children",
        "hashes",
        "hits",
        "hot",
        "in_flight",
        "in_flight_order",
        "last_used",
        "namespace",
        "newer",
        "newer_ghost",
        "older",
        "older_ghost",
        "order",
        "parent",
        "payload",
        "pins",
        "place",
        "rank",
        "retained",
        "run",
        "spared",
        "start",
        "stored_children",
        "tick",
    )

    def __init__(
        self, run: bytes | bytearray, blocks: array[int], parent: Node | None, start: int
    ) -> None:
        self.run = run
        self.blocks = blocks
        self.parent = parent
        self.start = start
        self.children: dict[bytes, Node] = {}
        self.hot: Node | None = None
        self.order: ChildOrder | None = None
        self.in_flight_order: ChildOrder | None = None
        self.stored_children = 0
        self.pins = 0
        self.in_flight = 0
        self.tick = 0
        self.last_used = 0.0
        self.born = 0.0
        self.hits = 0
        self.rank = 0
        self.place: Any = None
        self.cause: Cause | None = None  # of the first block of the ghost part
        self.older: Node | None = None
        self.newer: Node | None = None
        self.older_ghost: Node | None = None
        self.newer_ghost: Node | None = None
        self.retained = 0
        self.spared = False
        self.namespace: Namespace | None = None
        self.payload: bytes | bytearray = b""
        self.hashes = b""

    @property
    def num_tokens(self) -> int:
        """Tokens on this edge, ghosts included."""
        return len(self.run) // TOKEN_BYTES

    @property
    def end(self) -> int:
        """Tokens from the root to the end of the run."""
        return self.start + len(self.run) // TOKEN_BYTES


def new_root(now: float) -> Node:
    """The start of an empty tree."""
    root = Node(b"", token_array(), None, 0)
    root.last_used = now
    return root


def new_namespace(parent: Node, namespace: Namespace) -> Node:
    """The start of a namespace, below the root or below the public path it continues."""
    node = Node(b"", token_array(), parent, parent.end)
    node.namespace = namespace
    parent.children[namespace.key] = node
    return node


def first_block(node: Node, block_bytes: int) -> bytes:
    """The key of a node among its parent's children."""
    if node.namespace is not None:
        return node.namespace.key
    key = node.run[:block_bytes]
    return key if isinstance(key, bytes) else bytes(key)


def ghost_blocks(node: Node, block_bytes: int) -> int:
    """Blocks of the run that are no longer in memory."""
    return len(node.run) // block_bytes - len(node.blocks)


def split(node: Node, at_bytes: int, block_bytes: int) -> Node:
    """Cut the edge after ``at_bytes`` (whole blocks) and return the new upper node.

    ``node`` stays the lower part, so that leases that end at it still do; the upper part is pinned
    by all of them. Cost: one copy of the run.
    """
    parent = node.parent
    if parent is None or not 0 < at_bytes < len(node.run) or at_bytes % block_bytes:
        raise ValueError(f"a run of {len(node.run)} bytes cannot be split at {at_bytes}")
    cut = at_bytes // block_bytes
    upper = Node(bytes(node.run[:at_bytes]), node.blocks[:cut], parent, node.start)
    upper.pins, upper.tick, upper.last_used = node.pins, node.tick, node.last_used
    upper.hits, upper.rank, upper.retained = node.hits, node.rank, node.retained
    upper.born = node.born
    if cut > len(node.blocks) - node.in_flight:  # else it has no ghost part, nor had one
        upper.cause = node.cause
    parent.children[bytes(node.run[:block_bytes])] = upper
    if parent.hot is node:
        parent.hot = upper
    node.run = node.run[at_bytes:]
    node.blocks = node.blocks[cut:]
    node.start += at_bytes // TOKEN_BYTES
    node.parent = upper
    lower_in_flight = min(node.in_flight, len(node.blocks))
    upper.in_flight, node.in_flight = node.in_flight - lower_in_flight, lower_in_flight
    if node.payload:
        upper.payload, node.payload = node.payload[:at_bytes], node.payload[at_bytes:]
    if node.hashes:
        upper.hashes, node.hashes = node.hashes[: cut * HASH_BYTES], node.hashes[cut * HASH_BYTES :]
    upper.children[bytes(node.run[:block_bytes])] = node
    upper.hot = node
    upper.stored_children = 1 if node.blocks else 0
    return upper


def usable(child: Node | None) -> bool:
    """Whether rows of the child's first block may be copied: it is in memory and computed."""
    return child is not None and len(child.blocks) > child.in_flight


def begins_in_flight(child: Node | None) -> bool:
    """Whether the child's first block is in flight, and so all of them."""
    return child is not None and 0 < len(child.blocks) == child.in_flight
