"""What a look-up returns, and the receipt for what a request then pins."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from radix_engine.cache.node import Node
from radix_engine.cache.token_run import token_array


@dataclass(frozen=True, slots=True)
class Match:
    """How far the tree covers a prompt. Read-only: it pins nothing.

    ``num_tokens`` are covered, whole blocks, never the prompt's last token. The match ends in
    ``node`` after ``inside_bytes`` of its run (all of it, when it ends at the node). It is good
    for as long as the tree's ``version`` stays.
    """

    node: Node
    inside_bytes: int
    num_tokens: int
    version: int


class Lease:
    """The receipt for a pinned path: ``num_tokens`` of a request's tokens, whose blocks nobody
    evicts.

    The path ends at ``node``. Publishing moves the end further down; release gives the path back,
    once.
    """

    __slots__ = ("node", "num_tokens", "released", "root")

    def __init__(self, node: Node, root: Node, num_tokens: int) -> None:
        self.node = node
        self.root = root
        self.num_tokens = num_tokens
        self.released = False

    def blocks(self) -> array[int]:
        """The leased blocks, first token first. Cost: the path's depth and its blocks."""
        edges = []
        node: Node | None = self.node
        while node is not None:
            edges.append(node.blocks)
            node = node.parent
        table = token_array()
        for blocks in reversed(edges):
            table.extend(blocks)
        return table
