"""What LRU would have hit with less memory or more: its hit rate at several sizes, live.

The method is the stack of Mattson, Gecsei, Slutz and Traiger (Evaluation Techniques for Storage
Hierarchies, IBM Systems Journal 9(2), 1970). Ordered by last use, newest first, the first S blocks
are what an LRU memory of S blocks holds, so that one order answers for all sizes at once.

Here a use is a whole path of the tree, and the order needs no list of blocks. All blocks of a path
get the same tick; later uses take the upper end of the path away and what is forgotten comes off
its lower end, so the blocks of a tick always form one chain. The stack is these chains, newest tick
first and each from the root downwards, and their lengths are all there is to know. Per size a
marker says where its memory ends: at which tick, and how many blocks of that tick's chain, from its
upper end, are still inside.

    tick      9 9 9 | 7 7 | 5 5 5 5 | 2 2         size 7: marker at tick 5, 2 blocks inside
    inside    * * *   * *   * * - -   - -

What a use does to a memory depends on where the blocks were: from inside, they only change places;
from outside or from nowhere, they add to it, and what is then too much leaves at the marker.

A memory that lost blocks, because they were forgotten, has room until new ones fill it: LRU does
not bring back by itself what it evicted. So a marker moves only towards newer ticks, over each at
most once, and the blocks inside can be fewer than the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from radix_engine.cache.tick_table import TickTable


class ReuseCurve:
    """Counts, for each of ``sizes`` (in blocks), the prompt tokens that LRU would have served.

    ``prompt_tokens`` and ``hit_tokens`` (one count per size) are totals since the start. A size
    above the number of blocks that are known (in memory, or evicted and remembered) is credited
    with no others than these. What this needs grows with the ticks that have blocks, not with the
    uses seen.

    Raises ValueError for sizes that are negative or do not ascend.
    """

    __slots__ = (
        "_ends",
        "_length",
        "_marks",
        "_newest",
        "_room",
        "hit_tokens",
        "prompt_tokens",
        "sizes",
    )

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        if list(self.sizes) != sorted(self.sizes) or (self.sizes and self.sizes[0] < 0):
            raise ValueError(f"sizes must be block counts from 0 on, ascending, not {self.sizes}")
        self.prompt_tokens = 0
        self.hit_tokens = [0] * len(self.sizes)
        self._newest = 0
        self._length = TickTable()  # blocks of each tick's chain, if any
        # Per size. A larger memory holds all that a smaller one does, so marks do not ascend.
        self._marks = [0] * len(self.sizes)  # all newer ticks are inside, all older ones outside
        self._ends = [0] * len(self.sizes)  # how many blocks of the mark's own tick are inside
        self._room = list(self.sizes)  # how many blocks more than those inside there is room for

    def touch(self, groups: Iterable[tuple[int, int]], tick: int, blocks: int) -> None:
        """A path of ``blocks`` blocks from the root now carries ``tick``.

        ``groups``: which ticks its blocks carried before, as (tick, blocks) in any order; tick 0
        stands for none. What a group names beyond the blocks known under its tick counts as new,
        as does all of the path that no group names.

        Cost: groups x sizes at worst, amortised; groups newer than all marks cost a dictionary
        look-up each. Raises ValueError, before any change, when ``tick`` is not newer than all
        before it.
        """
        if tick <= self._newest:
            raise ValueError(f"tick {tick} must be greater than the last one, {self._newest}")
        self._newest = tick
        length = self._length
        marks = self._marks
        ends = self._ends
        room = self._room
        new = blocks
        for old, count in groups:
            known = length.take(old, count)
            if not known:
                continue
            if count > known:
                count = known
            new -= count
            for place, mark in enumerate(marks):
                if old > mark:
                    break  # inside here, and in all larger memories
                if old < mark:
                    room[place] -= count
                else:  # the path took the upper end of the chain: first what is inside
                    end = ends[place]
                    if count < end:
                        ends[place] = end - count
                    else:
                        ends[place] = 0
                        room[place] -= count - end
        if blocks > 0:
            length.append(tick, blocks)
        for place, free in enumerate(room):
            if free >= new:
                room[place] = free - new
                continue
            room[place] = 0
            excess = new - free
            end = ends[place]
            if excess > end:
                # On to the chain in which the excess ends. At least one of its blocks leaves;
                # smaller memories have lost that one before, so marks still do not ascend.
                mark = marks[place]
                while excess > end:
                    excess -= end
                    mark, end = length.after(mark)
                marks[place] = mark
            ends[place] = end - excess

    def forget(self, tick: int, blocks: int) -> None:
        """The deepest ``blocks`` blocks that carry ``tick`` are no longer known, or all if there
        are fewer; tick 0 has none. What lay below them has been forgotten before. Memories that
        held them have room from now on. Cost: the sizes.
        """
        if blocks <= 0:
            return
        known = self._length.take(tick, blocks)
        if not known:
            return
        left = known - blocks if blocks < known else 0
        # Mostly what is forgotten is old, and outside of all but the largest memories.
        for place in range(len(self._marks) - 1, -1, -1):
            mark = self._marks[place]
            if tick < mark:
                return
            if tick > mark:
                self._room[place] += known - left
            elif self._ends[place] > left:
                self._room[place] += self._ends[place] - left
                self._ends[place] = left

    def record(
        self,
        prompt_tokens: int,
        block_size: int,
        in_use_blocks: int,
        groups: Sequence[tuple[int, int]],
    ) -> None:
        """Count a request's prompt, once, at its first admission. Changes nothing in the stack.

        The prompt's known path is ``in_use_blocks`` blocks, which are in use right now and so a hit
        at any size, followed by ``groups``, (tick, blocks) from the root downwards, ticks not
        ascending. Counted are whole blocks up to the first that the memory would not hold; the
        caller names no block that a prompt of this length could not be served.

        Where the blocks in use end inside a chain, the first group is taken for the upper end of
        that chain: a memory that ends in just this chain may be credited with too many of its
        blocks. Cost: groups + sizes.
        """
        self.prompt_tokens += prompt_tokens
        length = self._length
        marks = self._marks
        sizes = len(marks)
        place = 0  # the smaller sizes are counted already
        covered = start = limit = in_use_blocks
        last = -1  # the tick of the chain that ``covered`` ends in; it began at ``start``
        for tick, count in groups:
            if tick != last:
                if place < sizes and marks[place] > tick:
                    place = self._count(place, tick, last, start, covered, block_size)
                last = tick
                start = covered
                limit = covered + length.get(tick)
            covered += count
            if covered > limit:
                covered = limit
                break  # what comes next is not known under this tick
        self._count(place, -1, last, start, covered, block_size)

    def clear(self) -> None:
        """The memory was emptied: nothing is known any more. Totals stay, and so does the last
        tick."""
        self._length.clear()
        self._room[:] = self.sizes
        for counts in (self._marks, self._ends):
            counts[:] = [0] * len(counts)

    def hit_rates(self) -> list[float]:
        """Per size: which share of all prompt tokens a memory of that size would have served; 0.0
        before there were any."""
        total = self.prompt_tokens
        return [hits / total if total else 0.0 for hits in self.hit_tokens]

    def _count(
        self, place: int, tick: int, last: int, start: int, covered: int, block_size: int
    ) -> int:
        """Count the sizes from ``place`` on whose memory ends before ``tick``; the first that does
        not."""
        marks = self._marks
        hit_tokens = self.hit_tokens
        sizes = len(marks)
        while place < sizes:
            mark = marks[place]
            if mark <= tick:
                break
            served = covered
            if mark == last:
                end = start + self._ends[place]
                if end < served:
                    served = end
            hit_tokens[place] += served * block_size
            place += 1
        return place
