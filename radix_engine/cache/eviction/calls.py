"""The last calls and what became of them, for the model of returns."""

from __future__ import annotations

import math

import numpy as np

from radix_engine.cache.eviction.returns import STOPS, Counts, Numbers, Returns
from radix_engine.cache.node import Node


class Call:
    """A call of a branch: when it ``began`` and its reply ``ended`` (None: it has not), and
    whether that called a tool (``stop`` 1).

    ``log_gap``: the branch's usual gap between calls, log2 of seconds. ``length``: tokens of its
    path, which has the node tick ``tick``. ``leaf``: where the path ends, while the rule holds
    that. ``is_continued``: another call went on from it; the first one from token ``parted_at``.
    ``slot``: its place among the waiting; -1 for none.
    """

    __slots__ = (
        "began",
        "ended",
        "gap_class",
        "is_continued",
        "leaf",
        "length",
        "log_gap",
        "parted_at",
        "slot",
        "stop",
        "tick",
    )

    def __init__(self, began: float, log_gap: float | None, gap_class: int) -> None:
        self.began = began
        self.ended: float | None = None
        self.stop = 0
        self.log_gap = log_gap
        self.gap_class = gap_class
        self.length = 0
        self.tick = 0
        self.leaf: Node | None = None
        self.is_continued = False
        self.parted_at: int | None = None
        self.slot = -1


class Calls:
    """The last ``most`` calls by the tick of their paths, and which of them wait to be continued.

    The waiting ones are columns of arrays, so that all of them are counted in numpy at once. A call
    that leaves since it has become one of too many counts for as long as it was watched.
    """

    def __init__(self, returns: Returns, most: int) -> None:
        self._returns = returns
        self._most = most
        self._by_tick: dict[int, Call] = {}
        self._ring: list[Call | None] = [None] * most
        self._next = 0
        self._began = np.zeros(most)
        self._ended = np.full(most, np.nan)
        self._gap_class = np.zeros(most, np.int64)
        self._stop = np.zeros(most, np.int64)
        self._waits = np.zeros(most, bool)

    def __len__(self) -> int:
        return sum(call is not None for call in self._ring)

    def at(self, tick: int) -> Call | None:
        """The call whose path has this tick."""
        return self._by_tick.get(tick)

    def enter(self, call: Call, now: float, *, waits: bool) -> None:
        """A new call, which may come back. The oldest leaves, where there are too many."""
        slot = self._next
        self._next = (slot + 1) % self._most
        oldest = self._ring[slot]
        if oldest is not None:
            self._drop(oldest, now)
        self._ring[slot] = call
        call.slot = slot
        self._began[slot] = call.began
        self._ended[slot] = math.nan if call.ended is None else call.ended
        self._gap_class[slot] = call.gap_class
        self._stop[slot] = call.stop
        self._waits[slot] = waits

    def file(self, call: Call, tick: int, length: int, now: float) -> None:
        """The path of a call has this tick, and so many tokens."""
        if call.slot < 0:  # a branch, or it ran for longer than so many others took to come
            self.enter(call, now, waits=False)
        call.tick = tick
        call.length = length
        self._by_tick[tick] = call

    def note_end(self, call: Call, ended: float) -> None:
        """Its reply has ended."""
        call.ended = ended
        if call.slot >= 0:
            self._ended[call.slot] = ended

    def note_tool(self, call: Call) -> None:
        """Its reply calls a tool."""
        call.stop = 1
        if call.slot >= 0:
            self._stop[call.slot] = 1

    def waits(self, call: Call) -> bool:
        """Whether no other call has continued it."""
        return call.slot >= 0 and bool(self._waits[call.slot])

    def came_back(self, call: Call, now: float) -> None:
        """Another call continues it."""
        self._waits[call.slot] = False
        returns = self._returns
        returns.came_back(returns.running(call.gap_class), now - call.began)
        if call.ended is not None and now >= call.ended:
            returns.came_back(returns.replied(call.gap_class, call.stop), now - call.ended)

    def give_up(self, call: Call) -> None:
        """It left nothing to come back to."""
        if call.slot >= 0:
            self._waits[call.slot] = False

    def rebuild(self, now: float) -> None:
        """Make the table of returns anew. Cost: O(waiting), in numpy."""
        waiting = np.flatnonzero(self._waits)
        gone = now - self._began[waiting] > self._returns.config.most_s
        self._returns.add_gone(self._observed(waiting[gone], now)[0])
        self._waits[waiting[gone]] = False
        self._returns.rebuild(*self._observed(waiting[~gone], now))

    def clear(self) -> None:
        """Forget all calls; those still running are entered again when they end."""
        for call in self._ring:
            if call is not None:
                call.slot = -1
        self._by_tick.clear()
        self._ring = [None] * self._most
        self._waits[:] = False

    def _observed(self, slots: Numbers, now: float) -> tuple[Numbers, Counts]:
        """The classes that calls are of, and their ages: since arrival, and since the end where
        there was one."""
        returns = self._returns
        ended = slots[~np.isnan(self._ended[slots])]
        classes = np.concatenate(
            [
                returns.running(0) + self._gap_class[slots],
                STOPS * self._gap_class[ended] + self._stop[ended],
            ]
        )
        ages = np.concatenate([now - self._began[slots], now - self._ended[ended]])
        return classes, ages

    def _drop(self, call: Call, now: float) -> None:
        if self._waits[call.slot]:
            returns = self._returns
            returns.lost(returns.running(call.gap_class), now - call.began)
            if call.ended is not None:
                returns.lost(returns.replied(call.gap_class, call.stop), now - call.ended)
            self._waits[call.slot] = False
        call.slot = -1
        if self._by_tick.get(call.tick) is call:
            del self._by_tick[call.tick]
