"""The orders that do not look at what requests share."""

from __future__ import annotations

import pytest

from scheduler.order import FirstCome
from tests.scheduler.prompts import all_in_order, arrival_of, ask, new, runs, waits


def test_first_come_first_served_looks_at_arrival_only() -> None:
    trie, order = new("fcfs")
    waits(trie, order, ask(2, "b", priority=9), cached=4)
    waits(trie, order, ask(1, "a"), ask(3, "c"))
    assert all_in_order(order) == [1, 2, 3]


def test_the_highest_priority_comes_first_then_arrival() -> None:
    trie, order = new("priority")
    priorities = [0, -1, 7, 0, 7]
    waits(trie, order, *(ask(n, "a", priority=p) for n, p in enumerate(priorities, 1)))
    assert all_in_order(order) == [3, 5, 1, 4, 2]


def test_the_highest_response_ratio_comes_first() -> None:
    trie, order = new("hrrn")
    # At 20 s: 20 / 13 tokens, 20 / 5, 16 / 5, and 10 / 1 where all but the last token is cached.
    waits(trie, order, ask(1, "abc"), ask(2, "d"), ask(3, "e", arrived_s=4.0))
    waits(trie, order, ask(4, "fgh", arrived_s=10.0), cached=12)
    assert all_in_order(order, now=20.0) == [4, 2, 3, 1]


def test_who_waits_long_enough_passes_shorter_work() -> None:
    trie, order = new("hrrn")
    waits(trie, order, one := ask(1, "abc"), ask(2, "d", arrived_s=90.0))
    assert order.best(95.0) is one  # 95 / 13 against 5 / 5
    order.add(one)
    assert arrival_of(order.best(1000.0)) == 2  # 1000 / 13 against 910 / 5


def test_a_ranking_holds_for_one_instant() -> None:
    trie, order = new("hrrn")
    one, two, three = ask(1, "abcd"), ask(2, "ab"), ask(3, "abc")
    waits(trie, order, one, two, three)
    assert order.best(10.0) is two
    trie.cover(one, 16)
    assert order.best(10.0) is three  # 13 tokens against 17, as they were
    order.add(three)
    assert order.best(11.0) is one  # 11 / 1 each, and it came first


@pytest.mark.parametrize("name", ["fcfs", "priority", "hrrn"])
def test_the_plain_orders_offer_blocked_requests_too(name: str) -> None:
    trie, order = new(name)
    runs(trie, order, ask(1, "ab"))
    waits(trie, order, two := ask(2, "ab"))
    assert order.best(1.0) is two
    assert trie.blocked(two)


@pytest.mark.parametrize("name", ["fcfs", "priority", "hrrn"])
def test_requests_that_are_discarded_do_not_pile_up(name: str) -> None:
    trie, order = new(name)
    assert isinstance(order, FirstCome)
    for arrival in range(1, 3000):
        waits(trie, order, request := ask(arrival, "a"))
        order.discard(request)
        trie.remove(request)
    assert len(order._heap) < 200
