"""What a look-up in the tree returns, and the receipt for what a request then pins."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node
from radix_engine.cache.payload import payload_of
from radix_engine.cache.token_run import token_array


class Match(NamedTuple):
    """How far the tree covers a prompt. Read-only: it pins nothing.

    ``num_tokens`` are covered, never the prompt's last one: whole blocks down to ``node`` after
    ``inside_bytes`` of its run (all of it, where it ends at the node), then ``copy_rows`` rows of
    block ``copy_source``. ``seen_node`` and ``seen_bytes`` say how far the prompt is known at all,
    ghosts included. ``public_tokens``: how much of the prompt lies on a public path.
    ``most_tokens``: the match was not to cover more. Good for as long as the tree's ``version``
    stays.
    """

    num_tokens: int
    copy_rows: int
    copy_source: int
    version: int
    node: Node
    inside_bytes: int
    seen_node: Node
    seen_bytes: int
    prompt_tokens: int
    public_tokens: int
    most_tokens: int
    namespace: Namespace
    mode: CacheMode


class Lease:
    """The receipt for a pinned path: the blocks of ``num_tokens`` of a request's tokens, which
    nobody evicts.

    The path ends at ``node``. Publishing moves the end further down; release gives the path back,
    once. The last ``in_flight_tokens`` are announced and not yet computed. ``root``: the tree it
    was taken from. ``note`` belongs to the eviction rule.
    """

    __slots__ = (
        "in_flight_tokens",
        "namespace",
        "node",
        "note",
        "num_tokens",
        "priority",
        "public_tokens",
        "released",
        "root",
    )

    def __init__(
        self,
        node: Node,
        root: Node,
        num_tokens: int,
        namespace: Namespace,
        public_tokens: int,
        priority: int,
    ) -> None:
        self.node = node
        self.root = root
        self.num_tokens = num_tokens
        self.namespace = namespace
        self.public_tokens = public_tokens
        self.priority = priority
        self.in_flight_tokens = 0
        self.note: Any = None
        self.released = False

    def blocks(self) -> array[int]:
        """The leased blocks, first token first. Cost: the path's depth and its blocks."""
        edges = []
        node: Node | None = self.node
        while node is not None:
            if node.blocks:
                edges.append(node.blocks)
            node = node.parent
        table = edges.pop()[:] if edges else token_array()
        while edges:
            table += edges.pop()
        return table

    def payload(self) -> bytes:
        """The payload of the leased tokens, 4 bytes each; not-a-number where none was given."""
        edges = []
        node: Node | None = self.node
        while node is not None:
            edges.append(payload_of(node))
            node = node.parent
        return b"".join(reversed(edges))
