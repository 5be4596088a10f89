"""All unpinned leaves: those that the rule chooses from, and those that are retained."""

from __future__ import annotations

from radix_engine.cache.eviction.lru import LruLeaves
from radix_engine.cache.eviction.rule import EvictionRule
from radix_engine.cache.eviction.rules import OldestLeaves
from radix_engine.cache.node import Node


class LeafIndex:
    """Hands each leaf to the rule, or, where a retention covers it, to a list of last resort.

    With ``by_age`` it also keeps the rule's leaves by age, for expiry.
    """

    def __init__(self, rule: EvictionRule, *, by_age: bool) -> None:
        self.rule = rule
        self.retained = LruLeaves()
        self._own_ages = OldestLeaves() if by_age and not isinstance(rule, LruLeaves) else None

    def add(self, leaf: Node, now: float) -> None:
        """A leaf may be evicted from now on."""
        if leaf.retained:
            self.retained.add(leaf, now)
            return
        self.rule.add(leaf, now)
        if self._own_ages is not None:
            self._own_ages.add(leaf, now)

    def discard(self, leaf: Node) -> None:
        """A leaf, which was added, may no longer be evicted, or is about to change."""
        if leaf.retained:
            self.retained.discard(leaf)
            return
        self.rule.discard(leaf)
        if self._own_ages is not None:
            self._own_ages.discard(leaf)

    def removed(self, leaf: Node, now: float) -> None:
        """All blocks of a leaf, which was added, are being taken."""
        if leaf.retained:
            self.retained.discard(leaf)
            return
        self.rule.removed(leaf, now)
        if self._own_ages is not None:
            self._own_ages.discard(leaf)

    def victim(self, now: float) -> Node | None:
        """The leaf to take blocks from: a retained one only when no other is left."""
        leaf = self.rule.victim(now)
        return self.retained.victim(now) if leaf is None else leaf

    def oldest(self, now: float) -> Node | None:
        """The leaf, not retained, that has been idle for longest (with ``by_age`` only)."""
        ages = self.rule if self._own_ages is None else self._own_ages
        return ages.victim(now)

    def leaves(self) -> list[Node]:
        """All of them, for audits."""
        return self.rule.leaves() + self.retained.leaves()

    def clear(self) -> None:
        """Forget all leaves."""
        self.rule.clear()
        self.retained.clear()
        if self._own_ages is not None:
            self._own_ages.clear()
