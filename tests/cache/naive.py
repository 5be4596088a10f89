"""The prefix cache said again in the plainest way: a dictionary of prefixes, one entry a block.

Slow and without nodes, splits or indices. The random tests hold the real cache against it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from radix_engine.cache import Namespace

Place = tuple[Namespace, int]
"""A namespace, and after how many public tokens it continues."""
Prefix = tuple[Place, tuple[int, ...]]


@dataclass
class Stored:
    """A block's worth of tokens after all those before it."""

    block: int
    used: int = 0  # when the last request that used it ended, as a count of such ends
    at: float = 0.0  # the same, in seconds
    pins: int = 0
    in_flight: bool = False
    retained: int = 0
    spared: bool = False


class NaiveTree:
    """``entries`` maps each stored prefix of whole blocks to the block that holds its end."""

    def __init__(self, block_size: int) -> None:
        self.size = block_size
        self.entries: dict[Prefix, Stored] = {}
        self.now = 0

    def prefixes(
        self, tokens: Sequence[int], namespace: Namespace, public: int = 0
    ) -> list[Prefix]:
        """All prefixes of whole blocks, shortest first; ``public`` tokens are shared by all."""
        shared, own = (namespace.shared, 0), (namespace, public)
        ends = range(self.size, len(tokens) + 1, self.size)
        return [(shared if end <= public else own, tuple(tokens[:end])) for end in ends]

    def matched(self, tokens: Sequence[int], namespace: Namespace, public: int = 0) -> list[Prefix]:
        """The stored prefixes of a prompt without its last token."""
        found = []
        for prefix in self.prefixes(tokens[:-1], namespace, public):
            if prefix not in self.entries:
                break
            found.append(prefix)
        return found

    def rows(self, tokens: Sequence[int], namespace: Namespace, public: int = 0) -> int:
        """How many more tokens some computed block, stored right after the match, begins with; none
        of what is stored behind a part of a public path."""
        start = len(self.matched(tokens, namespace, public)) * self.size
        wanted = tuple(tokens[start:-1])
        best = 0
        for (place, run), entry in self.entries.items():
            follows = len(run) == start + self.size and run[:start] == tuple(tokens[:start])
            if place == (namespace, public) and follows and not entry.in_flight:
                best = max(best, common(run[start:], wanted))
        return best

    def above(self, prefix: Prefix) -> Prefix:
        """The prefix that is one block shorter."""
        (namespace, public), run = prefix
        shorter = run[: -self.size]
        return ((namespace.shared, 0) if len(shorter) <= public else prefix[0]), shorter

    def from_on(self, prefix: Prefix) -> list[Prefix]:
        """A prefix and all that go on from it."""
        (place, cut), found = prefix, []
        for other, run in self.entries:
            continues = other[1] >= len(cut) and place == (other[0].shared, 0)
            if (other == place or continues) and run[: len(cut)] == cut:
                found.append((other, run))
        return found

    def pin(self, prefixes: Iterable[Prefix], by: int) -> None:
        for prefix in prefixes:
            self.entries[prefix].pins += by

    def use(self, prefixes: Iterable[Prefix], at: float) -> None:
        self.now += 1
        for prefix in prefixes:
            self.entries[prefix].used = self.now
            self.entries[prefix].at = at

    def publish(
        self, new: Sequence[Prefix], blocks: Sequence[int], *, in_flight: bool = False
    ) -> list[int]:
        """Store and pin prefixes; the blocks that hold them, up to the first in flight."""
        table = []
        for prefix, block in zip(new, blocks, strict=True):
            entry = self.entries.get(prefix)
            if entry is None:
                entry = self.entries[prefix] = Stored(block, in_flight=in_flight)
            elif entry.in_flight:
                break
            entry.pins += 1
            table.append(entry.block)
        return table

    def evictable(self) -> int:
        return sum(not entry.pins for entry in self.entries.values())

    def spare(self, prefixes: Iterable[Prefix]) -> None:
        """Spare these, and no others any more."""
        for entry in self.entries.values():
            entry.spared = False
        for prefix in prefixes:
            self.entries[prefix].spared = True

    def ends(self) -> list[tuple[bool, bool, int, Prefix]]:
        """The unpinned ends, next victim first: not retained, not spared, used longest ago."""
        inner = {self.above(prefix) for prefix in self.entries}
        return sorted(
            (
                (entry.retained > 0, entry.spared and not entry.retained, entry.used, prefix)
                for prefix, entry in self.entries.items()
                if not entry.pins and prefix not in inner
            ),
            key=lambda end: end[:3],
        )

    def evict(self, count: int) -> None:
        """Drop the first end, and again."""
        for _ in range(count):
            ends = self.ends()
            if not ends:
                return
            del self.entries[ends[0][3]]

    def follow_eviction(self, count: int, left: Collection[Prefix]) -> None:
        """So many prefixes were evicted by a rule that is not known here, and these are left: the
        ends of unpinned paths, and none that is retained or spared while there were others."""
        gone = {prefix: entry for prefix, entry in self.entries.items() if prefix not in left}
        assert len(gone) == count
        assert not any(entry.pins for entry in gone.values())
        for prefix in gone:
            del self.entries[prefix]
        assert not any(self.above(prefix) in gone for prefix in self.entries)
        kinds = [(e.retained > 0, e.spared and not e.retained) for e in gone.values()]
        assert all(end[:2] >= max(kinds) for end in self.ends() if kinds)

    def expire(self, before: float) -> int:
        """Drop every end that was used last before this time, and what is then one."""
        expired = 0
        while True:
            old = [
                prefix
                for retained, _, _, prefix in self.ends()
                if not retained and self.entries[prefix].at < before
            ]
            if not old:
                return expired
            for prefix in old:
                del self.entries[prefix]
            expired += len(old)

    def drop_unpinned(self) -> None:
        self.entries = {prefix: entry for prefix, entry in self.entries.items() if entry.pins}


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading items are equal."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
