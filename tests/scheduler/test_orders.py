from __future__ import annotations

from collections.abc import Iterable

import pytest

from radix_engine.cache import CacheMode
from scheduler.order import ORDERS, LongestMatch, make_order
from scheduler.prompt_trie import PromptTrie
from scheduler.request import Request
from scheduler.trie_node import TrieNode
from tests.scheduler.prompts import all_in_order, arrival_of, ask, new, runs, waits


def entries(nodes: Iterable[TrieNode]) -> int:
    return sum(len(node.heap) for node in nodes)


# All of them


def test_an_unknown_order_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="order must be one of lpm, dfs, hrrn, fcfs, priority, not 'sjf'"
    ):
        new("sjf")


@pytest.mark.parametrize("name", list(ORDERS))
def test_each_request_is_taken_once_and_comes_back_when_it_is_put_back(name: str) -> None:
    trie, order = new(name)
    requests = [ask(n, letters) for n, letters in enumerate(["ab", "ac", "b", "", "ab"], 1)]
    waits(trie, order, *requests)
    assert sorted(all_in_order(order)) == [1, 2, 3, 4, 5]
    for request in requests:
        order.add(request)
    assert sorted(all_in_order(order)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", list(ORDERS))
def test_a_request_that_was_discarded_is_not_offered(name: str) -> None:
    trie, order = new(name)
    requests = [ask(n, "ab") for n in (1, 2, 3)]
    waits(trie, order, *requests)
    order.discard(requests[0])
    order.discard(requests[0])
    trie.remove(requests[0])
    assert all_in_order(order) == [2, 3]


@pytest.mark.parametrize("name", list(ORDERS))
def test_an_empty_order_offers_nobody(name: str) -> None:
    trie, order = new(name)
    assert order.best(0.0) is None
    waits(trie, order, ask(1, "ab"))
    assert all_in_order(order) == [1]
    assert order.best(0.0) is None


@pytest.mark.parametrize("name", ["lpm", "dfs"])
def test_requests_that_come_and_go_leave_no_entries_behind(name: str) -> None:
    trie, order = new(name)
    waits(trie, order, ask(1, "ab"), ask(2, "ac"))
    nodes = [trie.root, *trie.root.children.values(), trie.ends[1], trie.ends[2]]
    for arrival in range(3, 3000):
        request = ask(arrival, "ab" if arrival % 2 else "a" + chr(1000 + arrival))
        waits(trie, order, request)
        order.discard(request)
        trie.remove(request)
    head = trie.ends[1].parent
    assert head is not None
    assert entries([*nodes, head]) < 400


# Longest match


def test_the_longest_match_comes_first_and_the_earliest_of_equal_ones() -> None:
    trie, order = new("lpm")
    for request, cached in (
        (ask(1, "axx"), 0),
        (ask(2, "bxxx"), 8),
        (ask(3, "cxx"), 12),
        (ask(4, "dxx"), 8),
        (ask(5, "exx"), 0),
    ):
        waits(trie, order, request, cached=cached)
    assert all_in_order(order) == [3, 2, 4, 1, 5]


def test_a_published_head_brings_all_who_share_it_to_the_front_by_arrival() -> None:
    trie, order = new("lpm")
    other = ask(1, "zz")
    first, *rest = (ask(n, "head" + chr(1000 - n)) for n in range(2, 7))
    waits(trie, order, other, *rest)
    runs(trie, order, first)
    trie.cover(first, 16)
    assert all_in_order(order) == [3, 4, 5, 6, 1]


def test_publishing_and_evicting_a_shared_head_moves_one_entry() -> None:
    trie, order = new("lpm")
    assert isinstance(order, LongestMatch)
    requests = [ask(n, "h" * 16 + chr(1000 + n)) for n in range(1, 2001)]
    waits(trie, order, *requests)
    assert arrival_of(order.best(0.0)) == 1
    trie.start(requests[0])
    before = len(order._ranking)
    trie.cover(requests[0], 64)
    assert len(order._ranking) == before + 1
    assert arrival_of(order.best(0.0)) == 2
    assert trie.settle(requests[1], 0)
    order.add(requests[1])
    assert order.best(0.0) is None  # all wait for the first
    trie.remove(requests[0])
    assert all_in_order(order) == list(range(2, 2001))


def test_blocked_requests_are_left_out_until_they_are_free() -> None:
    trie, order = new("lpm")
    owner, sibling, other = ask(1, "abcd"), ask(2, "abxy"), ask(3, "zz")
    runs(trie, order, owner)
    waits(trie, order, sibling)
    assert order.best(0.0) is None
    waits(trie, order, other)
    assert all_in_order(order) == [3]
    trie.cover(owner, 8)
    assert all_in_order(order) == [2]


@pytest.mark.parametrize("name", ["lpm", "dfs"])
@pytest.mark.parametrize("cached", [0, 4])
def test_siblings_of_an_aborted_owner_are_offered(name: str, cached: int) -> None:
    trie, order = new(name)
    owner = ask(1, "abcd")
    runs(trie, order, owner)
    trie.cover(owner, cached)
    waits(trie, order, ask(2, "abcd"), ask(3, "abxy"))
    assert order.best(0.0) is None
    trie.remove(owner)
    assert all_in_order(order) == [2, 3]


@pytest.mark.parametrize("name", ["lpm", "dfs"])
def test_siblings_of_an_owner_that_stores_no_more_are_offered(name: str) -> None:
    trie, order = new(name)
    owner = ask(1, "abcd")
    runs(trie, order, owner)
    waits(trie, order, ask(2, "abcd"))
    assert order.best(0.0) is None
    trie.stores_no_more(owner)
    assert all_in_order(order) == [2]


def test_a_match_that_turns_out_shorter_lets_the_next_longest_pass() -> None:
    trie, order = new("lpm")
    evicted, longer = ask(1, "abcd"), ask(2, "wxyz")
    waits(trie, order, evicted, cached=16)
    waits(trie, order, longer, cached=8)
    best = order.best(0.0)
    assert best is evicted
    assert trie.settle(best, 4)
    order.add(best)
    assert all_in_order(order) == [2, 1]


def test_a_request_that_comes_back_keeps_its_arrival() -> None:
    trie, order = new("lpm")
    early = ask(1, "ab")
    waits(trie, order, ask(2, "ac"), ask(3, "ad"), early)
    assert all_in_order(order) == [1, 2, 3]


def test_a_request_that_came_back_while_its_branch_was_blocked_keeps_its_arrival() -> None:
    trie, order = new("lpm")
    owner = ask(4, "ab")
    waits(trie, order, owner, ask(3, "z"), ask(5, "ab"))
    order.discard(owner)
    trie.start(owner)
    waits(trie, order, ask(2, "ab"))
    trie.remove(owner)
    assert all_in_order(order) == [2, 3, 5]


def test_splitting_and_merging_keep_the_order() -> None:
    trie, order = new("lpm")
    one, two, three, four = ask(1, "abcd"), ask(2, "abcd"), ask(3, "abxy"), ask(4, "abcx")
    waits(trie, order, two, one, cached=12)
    waits(trie, order, three, cached=8)
    waits(trie, order, four, cached=12)
    assert arrival_of(order.best(0.0)) == 1
    order.discard(three)
    trie.remove(three)
    order.discard(four)
    trie.remove(four)
    order.add(one)
    assert all_in_order(order) == [1, 2]


def test_a_request_that_does_not_read_waits_for_nobody() -> None:
    for name in ("lpm", "dfs"):
        trie, order = new(name)
        runs(trie, order, ask(1, "ab"))
        waits(trie, order, ask(2, "ab"), ask(3, "ab", mode=CacheMode.BYPASS))
        assert all_in_order(order) == [3]


@pytest.mark.parametrize("name", ["lpm", "dfs"])
def test_prompts_nested_thousands_deep_are_ordered_without_recursion(name: str) -> None:
    trie = PromptTrie(1)
    order = make_order(name, trie)
    requests = [Request(n, [5] * (3002 - n), 1) for n in range(1, 3001)]
    for request in requests:
        request.arrival = request.request_id
        waits(trie, order, request)
    for request in requests[1:]:
        order.discard(request)
    assert order.best(0.0) is requests[0]  # at the very end of the path
    assert order.best(0.0) is None
    order.add(requests[2])
    assert order.best(0.0) is requests[2]


def test_a_head_that_comes_and_goes_leaves_no_entries_behind() -> None:
    trie, order = new("lpm")
    assert isinstance(order, LongestMatch)
    one = ask(1, "abc")
    waits(trie, order, one, ask(2, "abd"))
    for _ in range(500):
        trie.cover(one, 8)
        trie.settle(one, 0)
    assert len(order._ranking) < 200
    assert all_in_order(order) == [1, 2]
