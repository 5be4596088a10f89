"""The prefix cache said again in the plainest way: a dictionary of prefixes, one entry a block.

Slow and without nodes, splits or indices. The random tests hold the real cache against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from radix_engine.cache import Namespace

Prefix = tuple[Namespace, tuple[int, ...]]


@dataclass
class Stored:
    """A block's worth of tokens after all those before it."""

    block: int
    used: int = 0  # when the last request that used it ended, as a count of such ends
    at: float = 0.0  # the same, in seconds
    pins: int = 0
    in_flight: bool = False
    retained: int = 0


class NaiveTree:
    """``entries`` maps each stored prefix of whole blocks to the block that holds its end."""

    def __init__(self, block_size: int) -> None:
        self.size = block_size
        self.entries: dict[Prefix, Stored] = {}
        self.now = 0

    def prefixes(self, tokens: Sequence[int], namespace: Namespace) -> list[Prefix]:
        """All prefixes of whole blocks, shortest first."""
        ends = range(self.size, len(tokens) + 1, self.size)
        return [(namespace, tuple(tokens[:end])) for end in ends]

    def matched(self, tokens: Sequence[int], namespace: Namespace) -> list[Prefix]:
        """The stored prefixes of a prompt without its last token."""
        found = []
        for prefix in self.prefixes(tokens[:-1], namespace):
            if prefix not in self.entries:
                break
            found.append(prefix)
        return found

    def rows(self, tokens: Sequence[int], namespace: Namespace) -> int:
        """How many more tokens some computed block, stored right after the match, begins with."""
        start = len(self.matched(tokens, namespace)) * self.size
        wanted = tuple(tokens[start:-1])
        best = 0
        for (owner, run), entry in self.entries.items():
            follows = len(run) == start + self.size and run[:start] == tuple(tokens[:start])
            if owner == namespace and follows and not entry.in_flight:
                best = max(best, common(run[start:], wanted))
        return best

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

    def ends(self) -> list[tuple[bool, int, Prefix]]:
        """The unpinned ends, next victim first: not retained, used longest ago."""
        inner = {(namespace, run[: -self.size]) for namespace, run in self.entries}
        return sorted(
            (
                (entry.retained > 0, entry.used, prefix)
                for prefix, entry in self.entries.items()
                if not entry.pins and prefix not in inner
            ),
            key=lambda end: end[:2],
        )

    def evict(self, count: int) -> None:
        """Drop the first end, and again."""
        for _ in range(count):
            ends = self.ends()
            if not ends:
                return
            del self.entries[ends[0][2]]

    def expire(self, before: float) -> int:
        """Drop every end that was used last before this time, and what is then one."""
        expired = 0
        while True:
            old = [
                prefix
                for retained, _, prefix in self.ends()
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
