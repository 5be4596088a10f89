"""All unpinned leaves: those that the rule chooses from, those spared, and those retained."""

from __future__ import annotations

from radix_engine.cache.eviction.lru import LruLeaves
from radix_engine.cache.eviction.rule import EvictionRule
from radix_engine.cache.eviction.rules import OldestLeaves
from radix_engine.cache.node import Node


class LeafIndex:
    """Hands each leaf to the rule; or to a list of last resort where a retention covers it, or to
    one before that where it is spared.

    ``spared``: the nodes that are marked so, leaves or not. With ``by_age`` the rule's leaves are
    also kept by age, for expiry.
    """

    def __init__(self, rule: EvictionRule, *, by_age: bool) -> None:
        self.rule = rule
        self.retained = LruLeaves()
        self.spared: dict[Node, None] = {}
        self._spared_leaves = OldestLeaves()
        self._own_ages = OldestLeaves() if by_age and not isinstance(rule, LruLeaves) else None

    def mark(self, node: Node, *, spared: bool) -> None:
        """From its next ``add`` on a node, which is not in the index now, is spared, or not."""
        node.spared = spared
        if spared:
            self.spared[node] = None
        else:
            self.spared.pop(node, None)

    def add(self, leaf: Node, now: float) -> None:
        """A leaf may be evicted from now on."""
        if leaf.retained:
            self.retained.add(leaf, now)
        elif leaf.spared:
            self._spared_leaves.add(leaf, now)
        else:
            self.rule.add(leaf, now)
            if self._own_ages is not None:
                self._own_ages.add(leaf, now)

    def discard(self, leaf: Node) -> None:
        """A leaf, which was added, may no longer be evicted, or is about to change."""
        if leaf.retained:
            self.retained.discard(leaf)
        elif leaf.spared:
            self._spared_leaves.discard(leaf)
        else:
            self.rule.discard(leaf)
            if self._own_ages is not None:
                self._own_ages.discard(leaf)

    def removed(self, leaf: Node, now: float) -> None:
        """All blocks of a leaf, which was added, are being taken."""
        if leaf.retained or leaf.spared:
            self.discard(leaf)
            return
        self.rule.removed(leaf, now)
        if self._own_ages is not None:
            self._own_ages.discard(leaf)

    def victim(self, now: float) -> Node | None:
        """The leaf to take blocks from: a spared one only when the rule has none, a retained one
        only when no other is left. Of these, the one idle for longest."""
        leaf = self.rule.victim(now)
        if leaf is None:
            leaf = self._spared_leaves.victim(now)
        return self.retained.victim(now) if leaf is None else leaf

    def oldest(self, now: float) -> Node | None:
        """The leaf, not retained, that has been idle for longest (with ``by_age`` only)."""
        ages = self.rule if self._own_ages is None else self._own_ages
        leaf, spared = ages.victim(now), self._spared_leaves.victim(now)
        if leaf is None or (spared is not None and spared.tick < leaf.tick):
            return spared
        return leaf

    def leaves(self) -> list[Node]:
        """All of them, for audits."""
        return self.rule.leaves() + self._spared_leaves.leaves() + self.retained.leaves()

    def clear(self) -> None:
        """Forget all leaves, and spare none."""
        for node in list(self.spared):
            self.mark(node, spared=False)
        self._spared_leaves.clear()
        self.rule.clear()
        self.retained.clear()
        if self._own_ages is not None:
            self._own_ages.clear()
