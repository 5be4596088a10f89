"""The eviction rules by name: lru, lfu, slru, fifo, priority, agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from sortedcontainers import SortedDict

from radix_engine.cache.eviction.agent import AgentLeaves
from radix_engine.cache.eviction.lru import LruLeaves
from radix_engine.cache.eviction.rule import EvictionRule, Uninterested
from radix_engine.cache.lease import Lease
from radix_engine.cache.node import Node


class SortedLeaves(Uninterested, ABC):
    """Leaves in the order of a score that does not change while they are held; the lowest goes
    first, and where scores are equal, the one idle for longest. Costs: O(log leaves)."""

    def __init__(self) -> None:
        self._by_score: SortedDict[tuple[int, int], Node] = SortedDict()

    @abstractmethod
    def score(self, leaf: Node) -> int:
        """What makes a leaf worth keeping."""

    def add(self, leaf: Node, now: float) -> None:
        """A leaf may be evicted from now on."""
        self._by_score[(self.score(leaf), leaf.tick)] = leaf

    def discard(self, leaf: Node) -> None:
        """A leaf may no longer be evicted."""
        self._by_score.pop((self.score(leaf), leaf.tick), None)

    def victim(self, now: float) -> Node | None:
        """The leaf with the lowest score."""
        if not self._by_score:
            return None
        leaf: Node = self._by_score.peekitem(0)[1]
        return leaf

    def removed(self, leaf: Node, now: float) -> None:
        """A leaf is no more."""
        self.discard(leaf)

    def leaves(self) -> list[Node]:
        """All of them, next victim first."""
        return list(self._by_score.values())

    def clear(self) -> None:
        """Forget all leaves."""
        self._by_score.clear()


class LfuLeaves(SortedLeaves):
    """Least frequently used leaf first: by the number of requests served through it."""

    def score(self, leaf: Node) -> int:
        """How many requests it has served."""
        return leaf.hits


class FifoLeaves(SortedLeaves):
    """The leaf stored first goes first, however often it was used since."""

    def __init__(self) -> None:
        super().__init__()
        self._stored = 0

    def stored(self, lease: Lease, now: float) -> None:
        """Number the paths in the order in which they are first stored."""
        node: Node | None = lease.node
        while node is not None and not node.rank:
            self._stored += 1
            node.rank = self._stored
            node = node.parent

    def score(self, leaf: Node) -> int:
        """When it was stored."""
        return leaf.rank


class OldestLeaves(SortedLeaves):
    """The one idle for longest goes first: LRU, for leaves that another rule has linked already."""

    def score(self, leaf: Node) -> int:
        """All are worth the same."""
        return 0


class PriorityLeaves(SortedLeaves):
    """The lowest priority goes first. A path has the highest one of all requests that used it."""

    def begun(self, lease: Lease, seen: Node, reach: int, now: float) -> None:
        """Raise the path's priority."""
        self.stored(lease, now)

    def stored(self, lease: Lease, now: float) -> None:
        """Raise the path's priority."""
        node: Node | None = lease.node
        while node is not None and node.rank < lease.priority:
            node.rank = lease.priority
            node = node.parent

    def score(self, leaf: Node) -> int:
        """Its priority."""
        return leaf.rank


class SlruLeaves(Uninterested):
    """Segmented LRU (Karedla, Love, Wherry 1994): a sweep of prompts that never come back cannot
    push out what is used again and again.

    Leaves that have served a request since they were stored are protected, the others are on
    probation; the victim is the oldest on probation. So that old favourites do leave one day, at
    most ``share`` of the leaves are protected: beyond that the oldest protected leaf is the victim.
    Costs: those of LRU.
    """

    def __init__(self, share: float = 0.8) -> None:
        self.share = share
        self._probation = LruLeaves()
        self._protected = LruLeaves()

    def add(self, leaf: Node, now: float) -> None:
        """A leaf may be evicted from now on."""
        (self._protected if leaf.hits else self._probation).add(leaf, now)

    def discard(self, leaf: Node) -> None:
        """A leaf may no longer be evicted."""
        (self._protected if leaf.hits else self._probation).discard(leaf)

    def victim(self, now: float) -> Node | None:
        """The oldest on probation, unless the protected have grown beyond their share."""
        protected, probation = len(self._protected), len(self._probation)
        if protected > self.share * (protected + probation):
            return self._protected.victim(now)
        return self._probation.victim(now) or self._protected.victim(now)

    def removed(self, leaf: Node, now: float) -> None:
        """A leaf is no more."""
        self.discard(leaf)

    def leaves(self) -> list[Node]:
        """All of them, those on probation first."""
        return self._probation.leaves() + self._protected.leaves()

    def clear(self) -> None:
        """Forget all leaves."""
        self._probation.clear()
        self._protected.clear()


RULES: dict[str, Callable[[], EvictionRule]] = {
    "lru": LruLeaves,
    "lfu": LfuLeaves,
    "slru": SlruLeaves,
    "fifo": FifoLeaves,
    "priority": PriorityLeaves,
    "agent": AgentLeaves,
}


def make_rule(name: str) -> EvictionRule:
    """The rule of this name. Raises ValueError for a name that there is none of."""
    try:
        return RULES[name]()
    except KeyError:
        raise ValueError(f"eviction must be one of {', '.join(RULES)}, not {name!r}") from None
