"""LRU's hit rate for every size of the memory, from one pass over the calls.

The stack of Mattson, Gecsei, Slutz and Traiger (1970): with all blocks in the order of their last
use, newest first and each path from its root down, the first S of them are what an LRU memory of S
blocks holds. How far down a block lies is the least size that would serve it. It holds for calls
that take no time; one that keeps its path for a while takes room from the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workloads.simulation.serial_calls import SerialCall

_Counts = npt.NDArray[np.int64]


def lru_curve(
    calls: Sequence[SerialCall], block_tokens: int, sizes: Sequence[int]
) -> dict[int, float]:
    """LRU's hit rate by size, in blocks: prompt tokens served over those asked for.

    Cost per call: O(its blocks + the pieces of its path that were last used together x log calls).
    """
    distinct = 1 + max((int(call.path.max()) for call in calls if len(call.path)), default=0)
    used = np.zeros(distinct, np.int64)  # when each block was last used, from 1 on; 0: never
    blocks = _Sums(len(calls) + 1)  # how many blocks have each time of last use
    wanted = np.array(sizes, np.int64)
    served = np.zeros(len(sizes), np.int64)
    for number, call in enumerate(calls, 1):
        path = call.path
        times = used[path]
        # Served is what is known from the root on; what follows may be known of other paths.
        known = len(times) if times.all() else int((times == 0).argmax())
        pieces = _pieces(times)
        depths = np.empty(known, np.int64)
        for start, end, time in pieces:
            if end <= known:
                # It begins where what is left of that time's path does.
                depths[start:end] = blocks.after(time) + np.arange(1, end - start + 1)
        limit = depths[: call.prompt_blocks]
        hit = np.searchsorted(limit, wanted, side="right")
        served += np.maximum(0, np.minimum(hit * block_tokens, call.prompt_tokens - 1))
        for start, end, time in pieces:
            blocks.add(time, start - end)
        blocks.add(number, len(path))
        used[path] = number
    asked = sum(call.prompt_tokens for call in calls)
    return {
        size: float(hits) / asked if asked else 0.0
        for size, hits in zip(sizes, served.tolist(), strict=True)
    }


def _pieces(times: _Counts) -> list[tuple[int, int, int]]:
    """Parts of a path that were last used together: first block, end, and when."""
    if not len(times):
        return []
    starts = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist()]
    ends = [*starts[1:], len(times)]
    pieces = zip(starts, ends, times[starts].tolist(), strict=True)
    return [(start, end, time) for start, end, time in pieces if time]


class _Sums:
    """Counts by time, and sums of all later ones: a Fenwick tree. Costs: O(log times)."""

    def __init__(self, times: int) -> None:
        self._tree = [0] * (times + 1)
        self._total = 0

    def add(self, time: int, count: int) -> None:
        self._total += count
        while time < len(self._tree):
            self._tree[time] += count
            time += time & -time

    def after(self, time: int) -> int:
        """Of all later times."""
        before = 0
        while time:
            before += self._tree[time]
            time -= time & -time
        return self._total - before
