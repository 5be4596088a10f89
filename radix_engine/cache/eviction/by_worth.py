"""Leaves in groups whose worth depends on their age alone, and the one of least worth."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from sortedcontainers import SortedList

from radix_engine.cache.eviction.calls import Call
from radix_engine.cache.node import Node

# A survey lists what each group's ages are worth now; for so long it is good enough, since an age
# moves through a bin in no less. So a survey, some 300 us, is rare, and a victim costs a few us.
_GOOD_FOR_S = 0.25

# Leaves taken from an interval at a time.
_BATCH = 32

Item = tuple[float, int, Node, "SortedList[Item]", Call | None]
"""A leaf, by the time its age counts from and its tick, which no two leaves share; its group, and
the call that left it."""

Worth = Callable[[int, float], float]


class Interval(NamedTuple):
    """The leaves of a group whose ages count from ``low`` to ``high``; all are of one worth."""

    worth: float
    low: float
    high: float
    items: SortedList[Item]


class LeavesByWorth:
    """Leaves in so many groups, each in the order of age.

    The victims are those of the interval of least worth, oldest first, then those of the next.
    Leaves that come while a survey is good are listed with it. Costs: O(log leaves) to add and to
    discard.
    """

    def __init__(self, groups: int) -> None:
        self._groups: list[SortedList[Item]] = [SortedList() for _ in range(groups)]
        self._count = 0
        self._intervals: list[Interval] = []  # the least worth is last
        self._batch: list[Item] = []  # of the last interval, the next victim is last
        self._surveyed = math.inf

    def __len__(self) -> int:
        return self._count

    def add(
        self, leaf: Node, group: int, since: float, call: Call | None, worth: Worth, now: float
    ) -> None:
        """A leaf whose age counts from ``since``. ``worth``: of a leaf of this group and age."""
        items = self._groups[group]
        item = (since, leaf.tick, leaf, items, call)
        items.add(item)
        leaf.place = item
        self._count += 1
        if call is not None:
            call.leaf = leaf
        if not self._surveyed <= now <= self._surveyed + _GOOD_FOR_S or not self._intervals:
            return
        batch, last = self._batch, self._intervals[-1]
        if last.items is items and last.low <= since <= last.high:
            if batch and item[:2] <= batch[-1][:2]:
                batch.append(item)  # what is left of a branch goes before the next one is touched
            return
        insort(
            self._intervals, Interval(worth(group, now - since), since, since, items), key=_order
        )
        if self._intervals[-1] is not last:
            batch.clear()

    def discard(self, leaf: Node) -> None:
        """Take a leaf out, if it is here."""
        item = leaf.place
        if item is None:
            return
        leaf.place = None
        item[3].remove(item)
        self._count -= 1
        if item[4] is not None:
            item[4].leaf = None

    def expire(self) -> None:
        """What was surveyed holds no more."""
        self._surveyed = math.inf

    def victim(self, now: float, survey: Callable[[float], Iterable[Interval]]) -> Node | None:
        """The leaf of least worth; None where there is none. ``survey`` lists the intervals, all
        leaves in one each."""
        if not self._surveyed <= now <= self._surveyed + _GOOD_FOR_S:
            self._survey(now, survey)
        while self._count:
            batch = self._batch
            while batch:
                leaf = batch[-1][2]
                if leaf.place is batch[-1]:
                    return leaf
                batch.pop()  # in use by now
            if not self._intervals:
                self._survey(now, survey)
            self._take_batch()
        return None

    def groups(self) -> Iterable[tuple[int, SortedList[Item]]]:
        """The groups that have leaves, with their numbers."""
        return ((number, items) for number, items in enumerate(self._groups) if items)

    def leaves(self) -> list[Node]:
        """All of them, group by group."""
        return [item[2] for items in self._groups for item in items]

    def clear(self) -> None:
        """Forget all leaves."""
        for items in self._groups:
            for item in items:
                item[2].place = None
                if item[4] is not None:
                    item[4].leaf = None
            items.clear()
        self._count = 0
        self._intervals.clear()
        self._batch.clear()
        self.expire()

    def _survey(self, now: float, survey: Callable[[float], Iterable[Interval]]) -> None:
        self._intervals = sorted(survey(now), key=_order)
        self._batch.clear()
        self._surveyed = now

    def _take_batch(self) -> None:
        """The first leaves of the last interval, or that interval away, where it is empty."""
        _, low, high, items = self._intervals[-1]
        first = islice(items.irange((low,), (high, math.inf)), _BATCH)
        self._batch.extend(first)
        self._batch.reverse()
        if not self._batch:
            self._intervals.pop()


def _order(interval: Interval) -> tuple[float, float]:
    return -interval.worth, -interval.low
