"""Cached blocks that nobody pins, in the order in which they are taken."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from radix_engine.cache.token_run import token_array


class FreeQueue:
    """Block ids, least recently used first, each with the time (seconds) since which it is idle.

    The owner of these blocks: whoever hits one removes it, whoever needs room takes the first. The
    times never fall along the queue. Every operation is O(1) a block.
    """

    __slots__ = ("_since",)

    def __init__(self) -> None:
        # Not a plain dict: finding the first entry of one skips all that were removed before it.
        self._since: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, block: int) -> bool:
        return block in self._since

    def __iter__(self) -> Iterator[int]:
        """The blocks, the one taken first at the front."""
        return iter(self._since)

    def times(self) -> Iterable[float]:
        """Since when each is idle, in the queue's order."""
        return self._since.values()

    def add(self, block: int, now: float) -> None:
        """Put a block at the end."""
        self._since[block] = now

    def remove(self, block: int) -> None:
        """A block is in use again. Raises KeyError when it is not in the queue."""
        del self._since[block]

    def take(self, count: int) -> array[int]:
        """Remove the first ``count`` blocks, or all there are."""
        pop = self._since.popitem
        return token_array([pop(last=False)[0] for _ in range(min(count, len(self._since)))])

    def take_idle(self, before: float) -> array[int]:
        """Remove the blocks that are idle since a time earlier than ``before``."""
        count = 0
        for since in self._since.values():
            if since >= before:
                break
            count += 1
        return self.take(count)
