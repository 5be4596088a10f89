"""Leaves in groups: the victim is the one of least worth, of equals the one that is oldest."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from radix_engine.cache import token_array
from radix_engine.cache.eviction.by_worth import Interval, LeavesByWorth
from radix_engine.cache.eviction.calls import Call
from radix_engine.cache.node import Node

OLD = 10.0  # seconds: what is older is worth a tenth


def leaf(tick: int) -> Node:
    node = Node(b"", token_array(), None, 0)
    node.tick = tick
    return node


class Shelf:
    """Leaves beside a plain list of them. Worths by group, in two steps of age."""

    def __init__(self, worths: list[float]) -> None:
        self.worths = worths
        self.leaves = LeavesByWorth(len(worths))
        self.known: dict[int, tuple[int, float, Node]] = {}  # by tick: group, since
        self.surveys = 0

    def worth(self, group: int, age: float) -> float:
        return self.worths[group] / (10.0 if age > OLD else 1.0)

    def survey(self, now: float) -> Iterator[Interval]:
        self.surveys += 1
        for group, items in self.leaves.groups():
            edge = now - OLD
            yield Interval(self.worths[group], edge, math.inf, items)
            below = math.nextafter(edge, -math.inf)
            yield Interval(self.worths[group] / 10, -math.inf, below, items)

    def add(
        self, tick: int, group: int, since: float, now: float, call: Call | None = None
    ) -> Node:
        node = leaf(tick)
        self.known[tick] = (group, since, node)
        self.leaves.add(node, group, since, call, self.worth, now)
        return node

    def discard(self, tick: int) -> None:
        self.leaves.discard(self.known.pop(tick)[2])

    def worth_of(self, tick: int, now: float) -> float:
        group, since, _ = self.known[tick]
        return self.worth(group, now - since)

    def order(self, now: float) -> list[int]:
        """The ticks of all leaves, the least worth first; of equals the one whose age counts from
        earliest."""
        return sorted(
            self.known, key=lambda tick: (self.worth_of(tick, now), self.known[tick][1], tick)
        )

    def victim(self, now: float) -> int | None:
        node = self.leaves.victim(now, self.survey)
        return None if node is None else node.tick


@pytest.mark.parametrize("seed", range(8))
def test_the_victim_is_the_one_of_least_worth_whatever_comes_and_goes(seed: int) -> None:
    draw = random.Random(seed)
    shelf = Shelf([5.0, 1.0, 3.0, 8.0])
    now = 100.0
    for tick in range(1, 400):
        # Within a quarter of a second no age moves on here: those that are added are of round ages.
        now = now + 1.0 if draw.random() < 0.2 else now
        if draw.random() < 0.6:
            shelf.add(tick, draw.randrange(4), now - draw.choice([0.0, 0.5, 4.0, 12.0, 40.0]), now)
        if shelf.known and draw.random() < 0.3:
            shelf.discard(draw.choice(list(shelf.known)))
        while shelf.known and draw.random() < 0.4:
            found = shelf.victim(now)
            assert found is not None
            least = shelf.worth_of(shelf.order(now)[0], now)
            assert shelf.worth_of(found, now) == least
            if draw.random() < 0.7:
                shelf.discard(found)
        assert len(shelf.leaves) == len(shelf.known)
        assert {node.tick for node in shelf.leaves.leaves()} == set(shelf.known)
    now += 1.0
    for expected in shelf.order(now):  # nothing comes any more: of equals the oldest
        assert shelf.victim(now) == expected
        shelf.discard(expected)
    assert shelf.victim(now) is None


def test_a_survey_is_good_for_a_quarter_of_a_second_and_until_it_is_expired() -> None:
    shelf = Shelf([1.0, 2.0])
    for tick in range(1, 9):
        shelf.add(tick, tick % 2, float(tick), 10.0)
    for now in (10.0, 10.1, 10.25):
        assert shelf.victim(now) == 2  # group 0, from 2 s on
    assert shelf.surveys == 1
    shelf.victim(10.26)
    assert shelf.surveys == 2
    shelf.leaves.expire()
    shelf.victim(10.26)
    assert shelf.surveys == 3
    shelf.victim(9.0)  # the clock went back
    assert shelf.surveys == 4


def test_a_call_knows_its_leaf_for_as_long_as_it_is_here() -> None:
    shelf = Shelf([1.0])
    calls = [Call(0.0, None, 0) for _ in range(3)]
    nodes = [shelf.add(tick, 0, 1.0, 5.0, call) for tick, call in enumerate(calls, 1)]
    assert [call.leaf for call in calls] == nodes
    shelf.leaves.discard(nodes[0])
    shelf.leaves.discard(nodes[0])  # again is a no-op
    assert [call.leaf for call in calls] == [None, *nodes[1:]]
    assert len(shelf.leaves) == 2
    shelf.leaves.clear()
    assert [call.leaf for call in calls] == [None] * 3
    assert len(shelf.leaves) == 0
    assert [node.place for node in nodes] == [None] * 3
    assert shelf.leaves.victim(5.0, shelf.survey) is None


def test_what_is_left_of_a_branch_goes_before_the_next_one_is_touched() -> None:
    shelf = Shelf([1.0])
    for tick, since in ((1, 3.0), (2, 4.0), (3, 5.0)):
        shelf.add(tick, 0, since, 8.0)
    assert shelf.victim(8.0) == 1
    shelf.discard(1)
    shelf.add(4, 0, 2.0, 8.0)  # what was above it, and is older
    assert shelf.victim(8.0) == 4
    shelf.discard(4)
    shelf.add(5, 0, 6.0, 8.0)  # younger than the next
    assert shelf.victim(8.0) == 2


def test_of_leaves_of_one_worth_that_came_since_the_survey_the_oldest_goes_first() -> None:
    shelf = Shelf([5.0, 1.0, 1.0])
    shelf.add(1, 0, 1.0, 8.0)
    assert shelf.victim(8.0) == 1
    shelf.add(2, 1, 5.0, 8.0)
    shelf.add(3, 2, 3.0, 8.0)
    assert shelf.victim(8.0) == 3
    shelf.discard(3)
    assert shelf.victim(8.0) == 2
