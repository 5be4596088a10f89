"""A request as the random tests of the cache see it, and the tree in terms of plain prefixes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from radix_engine.cache import DEFAULT, Lease, Namespace, token_array, unpack
from radix_engine.cache.node import Node
from tests.cache.naive import NaiveTree, Place, Prefix, Stored


def spell(letters: Sequence[str], size: int) -> list[int]:
    """A block's tokens for each letter, so that prompts collide at any block size. The blocks of
    "a" and "b" differ only in their last token, those of "c" and of numbers in the first."""
    blocks = {"a": [0] * size, "b": [0] * (size - 1) + [1], "c": [2] + [0] * (size - 1)}
    return [
        token
        for letter in letters
        for token in blocks.get(letter) or [10 + int(letter), *[0] * (size - 1)]
    ]


class User:
    """A request: its tokens, how many of them are public, its lease and its private blocks."""

    def __init__(
        self, tokens: list[int], namespace: Namespace, public: int, lease: Lease, tree: NaiveTree
    ) -> None:
        self.tokens = tokens
        self.namespace = namespace
        self.public = public
        self.lease = lease
        self.tree = tree
        self.private: array[int] = token_array()
        self.announced: list[Prefix] = []

    def prefixes(self, end: int) -> list[Prefix]:
        """Those of its first ``end`` tokens."""
        return self.tree.prefixes(self.tokens[:end], self.namespace, self.public)

    @property
    def leased(self) -> list[Prefix]:
        """What it pins; of a broken lease only what was withdrawn."""
        prefixes = self.prefixes(self.lease.num_tokens)
        return [prefix for prefix in prefixes if prefix in self.tree.entries]

    def grow(self, end: int, letters: list[str], size: int) -> None:
        """Generate what is missing up to token ``end``."""
        if len(self.tokens) < end:
            fill = spell([*letters, *"aaaaaa"], size)
            self.tokens = [*self.tokens, *fill][: max(end, len(self.tokens))]


def path_tokens(node: Node) -> list[int]:
    """The tokens from the root to the end of a node, ghosts included."""
    runs = []
    at: Node | None = node
    while at is not None:
        runs.append(unpack(bytes(at.run)))
        at = at.parent
    return [token for run in reversed(runs) for token in run]


Values = tuple[int, int, bool, int]


def values_of(entry: Stored) -> Values:
    return entry.block, entry.pins, entry.in_flight, entry.retained


def entries_of(root: Node, size: int) -> dict[Prefix, Values]:
    """Each stored prefix of whole blocks, with its block, its pins, whether it is in flight, and
    by how many it is retained. What was withdrawn lacks the tokens before it."""
    entries: dict[Prefix, Values] = {}
    todo: list[tuple[Node, Place, list[int]]] = [(root, (DEFAULT, 0), [])]
    while todo:
        node, place, before = todo.pop()
        if node.namespace is not None:
            place = node.namespace, node.start
        tokens = before + unpack(bytes(node.run))
        for index, block in enumerate(node.blocks, start=1):
            in_flight = index > len(node.blocks) - node.in_flight
            prefix = place, tuple(tokens[: len(before) + index * size])
            entries[prefix] = block, node.pins, in_flight, node.retained
        todo.extend((child, place, tokens) for child in node.children.values())
    return entries
