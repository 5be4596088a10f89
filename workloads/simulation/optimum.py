"""The best that any eviction rule can do, knowing all later calls.

Belady's rule (1966): evict what is needed again last. Of blocks that stand for prefixes, one is
needed no later than those below it, so what is needed last is always a leaf, and the rule never
breaks a path. Every call must store its path, and a running one keeps it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from workloads.simulation.serial_calls import SerialCall

_Ids = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Bucket:
    """What is in memory and needed again by one call: pieces of its path, (first block's depth,
    ids). What no call needs again has no one path, and no order."""

    pieces: list[tuple[int, _Ids]] = field(default_factory=list)
    is_sorted: bool = False


class Optimum:
    """Serves calls one after the other from ``num_blocks`` blocks, by the best rule there is.

    Cost per call: O(its blocks) in numpy, and O(log calls) for each piece that is evicted.
    """

    def __init__(self, calls: Sequence[SerialCall], num_blocks: int) -> None:
        self._calls = calls
        self._capacity = num_blocks
        self._free = num_blocks
        distinct = 1 + max((int(call.path.max()) for call in calls if len(call.path)), default=0)
        self._cached = np.zeros(distinct, bool)
        self._pins = np.zeros(distinct, np.int32)
        self._next = _next_uses(calls, distinct)
        self._buckets: dict[int, _Bucket] = {}
        self._latest: list[int] = []  # keys of the buckets, negated: a heap, latest need first
        self._running: list[tuple[float, int]] = []

    def hits(self) -> list[int]:
        """For each call, how many of its prompt's blocks it found."""
        return [self._serve(number) for number in range(len(self._calls))]

    def _serve(self, number: int) -> int:
        call = self._calls[number]
        while self._running and self._running[0][0] <= call.start_s:
            _, ended = heapq.heappop(self._running)
            self._pins[self._calls[ended].path] -= 1
        path = call.path
        known = self._cached[path]
        depth = len(path) if known.all() else int(known.argmin())
        self._buckets.pop(number, None)
        self._pins[path] += 1
        want = min(len(path), self._capacity)
        missing = max(0, want - depth)
        if missing > self._free:
            self._evict(missing - self._free)
        stored = min(len(path), depth + min(missing, self._free))
        self._free -= stored - depth
        self._cached[path[depth:stored]] = True
        self._file(path[:stored], self._next[number][:stored])
        if call.end_s > call.start_s:
            heapq.heappush(self._running, (call.end_s, number))
        else:
            self._pins[path] -= 1
        return min(depth, call.prompt_blocks)

    def _file(self, path: _Ids, needs: _Ids) -> None:
        """Note when each block of a path is needed again: along it, not sooner and not sooner."""
        if not len(path):
            return
        cuts = np.flatnonzero(np.diff(needs)) + 1
        starts = [0, *cuts.tolist()]
        for start, end in zip(starts, [*starts[1:], len(path)], strict=True):
            need = int(needs[start])
            bucket = self._buckets.get(need)
            if bucket is None:
                bucket = self._buckets[need] = _Bucket()
                heapq.heappush(self._latest, -need)
            bucket.pieces.append((start, path[start:end]))
            bucket.is_sorted = need == len(self._calls)

    def _evict(self, count: int) -> None:
        kept: list[int] = []  # all that is left of these is pinned
        while count > 0 and self._latest:
            need = -heapq.heappop(self._latest)
            bucket = self._buckets.get(need)
            if bucket is None:
                continue
            count -= self._take(bucket, count)
            if bucket.pieces:
                kept.append(need)
            else:
                del self._buckets[need]
        for need in kept:
            heapq.heappush(self._latest, -need)

    def _take(self, bucket: _Bucket, count: int) -> int:
        """Evict up to ``count`` blocks of a bucket, deepest first; how many."""
        pieces = bucket.pieces
        if not bucket.is_sorted:
            pieces.sort(key=lambda piece: piece[0])
            bucket.is_sorted = True
        taken = 0
        kept: list[tuple[int, _Ids]] = []  # pinned, or the one that less was taken of
        while pieces and taken < count:
            start, piece = pieces.pop()
            pinned = int(np.count_nonzero(self._pins[piece]))  # the first ones of the piece
            keep = max(pinned, len(piece) - (count - taken))
            self._cached[piece[keep:]] = False
            taken += len(piece) - keep
            if keep:
                kept.append((start, piece[:keep]))
        pieces.extend(reversed(kept))
        self._free += taken
        return taken


def _next_uses(calls: Sequence[SerialCall], distinct: int) -> list[_Ids]:
    """For each block of each call's path, the call that needs it next; ``len(calls)``: none."""
    latest = np.full(distinct, len(calls), np.int64)
    uses: list[_Ids] = []
    for number in range(len(calls) - 1, -1, -1):
        path = calls[number].path
        uses.append(latest[path])
        latest[path] = number
    uses.reverse()
    return uses
