"""The prefix cache said again in the plainest way: a dictionary of prefixes, one entry a block.

Slow and without nodes, splits or indices. The random tests hold the real cache against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Prefix = tuple[int, ...]


@dataclass
class Stored:
    """A block's worth of tokens after all those before it."""

    block: int
    used: int  # when, as a count of accesses
    pins: int = 0


class NaiveTree:
    """``entries`` maps each stored prefix of whole blocks to the block that holds its end."""

    def __init__(self, block_size: int) -> None:
        self.size = block_size
        self.entries: dict[Prefix, Stored] = {}
        self.now = 0

    def prefixes(self, tokens: Sequence[int]) -> list[Prefix]:
        """All prefixes of whole blocks, shortest first."""
        ends = range(self.size, len(tokens) + 1, self.size)
        return [tuple(tokens[:end]) for end in ends]

    def matched(self, tokens: Sequence[int]) -> list[Prefix]:
        """The stored prefixes of a prompt without its last token."""
        found = []
        for prefix in self.prefixes(tokens[:-1]):
            if prefix not in self.entries:
                break
            found.append(prefix)
        return found

    def pin(self, prefixes: Sequence[Prefix], by: int) -> None:
        for prefix in prefixes:
            self.entries[prefix].pins += by

    def use(self, prefixes: Sequence[Prefix]) -> None:
        self.now += 1
        for prefix in prefixes:
            self.entries[prefix].used = self.now

    def publish(self, tokens: Sequence[int], leased: int, blocks: Sequence[int]) -> list[int]:
        """Store and pin what follows the first ``leased`` tokens; the blocks that hold it."""
        table = []
        new = self.prefixes(tokens)[leased // self.size :]
        for prefix, block in zip(new, blocks, strict=True):
            entry = self.entries.setdefault(prefix, Stored(block, self.now))
            table.append(entry.block)
        self.pin(new, 1)
        self.use(self.prefixes(tokens))
        return table

    def evictable(self) -> int:
        return sum(not entry.pins for entry in self.entries.values())

    def evict(self, count: int) -> None:
        """Of the unpinned ends, drop the one that was used longest ago, and again."""
        for _ in range(count):
            inner = {prefix[: -self.size] for prefix in self.entries}
            ends = [
                (entry.used, prefix)
                for prefix, entry in self.entries.items()
                if not entry.pins and prefix not in inner
            ]
            if not ends:
                return
            del self.entries[min(ends)[1]]

    def drop_unpinned(self) -> None:
        self.entries = {prefix: entry for prefix, entry in self.entries.items() if entry.pins}
