"""The order by what shares most with the request taken last."""

from __future__ import annotations

from radix_engine.cache import Namespace
from tests.scheduler.prompts import all_in_order, arrival_of, ask, new, waits


def test_the_heaviest_branch_comes_first_and_is_finished_before_the_next() -> None:
    trie, order = new("dfs")
    prompts = ["xa", "yab", "yac", "ya", "yb", "xb", "z"]
    waits(trie, order, *(ask(n, prompt) for n, prompt in enumerate(prompts, 1)))
    # "y" has four, of which "ya" has three: 4 ends there, then its branches by the first one's
    # arrival; back to "y", then to "x" and "z".
    assert all_in_order(order) == [4, 2, 3, 5, 1, 6, 7]


def test_of_equally_heavy_branches_the_earliest_comes_first() -> None:
    trie, order = new("dfs")
    waits(trie, order, *(ask(n, prompt) for n, prompt in enumerate(["q", "b", "z", "a"], 1)))
    assert all_in_order(order) == [1, 2, 3, 4]


def test_a_branch_is_as_early_as_the_request_that_made_it() -> None:
    trie, order = new("dfs")
    first = ask(1, "ab")
    waits(trie, order, first, ask(2, "z"), ask(3, "ac"))
    order.discard(first)
    trie.remove(first)
    assert all_in_order(order) == [3, 2]


def test_what_only_begins_like_the_last_is_entered_at_its_heaviest() -> None:
    trie, order = new("dfs")
    last = ask(1, "abcd")
    waits(trie, order, last)
    assert order.best(0.0) is last
    trie.remove(last)
    waits(trie, order, *(ask(n, prompt) for n, prompt in enumerate(["axcd", "axe", "axe"], 2)))
    assert all_in_order(order) == [3, 4, 2]


def test_it_goes_on_with_what_shares_most_with_the_last() -> None:
    trie, order = new("dfs")
    last = ask(1, "abcd")
    waits(trie, order, last, ask(2, "abcx"))
    assert order.best(0.0) is last
    waits(trie, order, ask(3, "z"), ask(4, "z"), ask(5, "z"), ask(6, "ay"), ask(7, "ay"))
    assert all_in_order(order) == [2, 6, 7, 3, 4, 5]


def test_it_goes_on_there_when_the_last_has_left() -> None:
    trie, order = new("dfs")
    last = ask(1, "abcd")
    waits(trie, order, last)
    assert order.best(0.0) is last
    trie.remove(last)
    waits(trie, order, ask(2, "z"), ask(3, "z"), ask(4, "abx"))
    assert all_in_order(order) == [4, 2, 3]


def test_nobody_is_taken_while_others_wait_for_what_the_last_one_computes() -> None:
    trie, order = new("dfs")
    last = ask(1, "abcd")
    waits(trie, order, last, ask(2, "abcx"), ask(3, "z"))
    assert order.best(0.0) is last
    trie.start(last)
    assert order.best(0.0) is None
    trie.cover(last, 8)  # "ab"
    assert order.best(0.0) is None
    trie.cover(last, 12)
    assert arrival_of(order.best(0.0)) == 2


def test_it_goes_on_elsewhere_when_nobody_waits_for_the_last_one() -> None:
    trie, order = new("dfs")
    last = ask(1, "abcd")
    waits(trie, order, last, ask(2, "z"), ask(3, "ax"))
    assert order.best(0.0) is last
    trie.start(last)
    trie.cover(last, 4)  # "a": from here on the last one is alone
    assert arrival_of(order.best(0.0)) == 3
    assert arrival_of(order.best(0.0)) == 2


def test_one_that_was_put_back_does_not_count_as_taken() -> None:
    trie, order = new("dfs")
    last, other = ask(1, "ab"), ask(3, "z")
    waits(trie, order, last, ask(2, "ac"), other)
    assert order.best(0.0) is last
    order.discard(other)
    looked_at = order.best(0.0)
    assert looked_at is not None
    assert looked_at.arrival == 2
    order.add(looked_at)
    waits(trie, order, ask(4, "acx"))
    assert [arrival_of(order.best(0.0)) for _ in range(2)] == [2, 4]


def test_the_heaviest_namespace_comes_first() -> None:
    trie, order = new("dfs")
    other = Namespace(tenant="t")
    waits(trie, order, ask(1, "a"), ask(2, "a", namespace=other), ask(3, "b", namespace=other))
    assert all_in_order(order) == [2, 3, 1]


def test_a_weight_that_grew_counts_at_once() -> None:
    trie, order = new("dfs")
    waits(trie, order, ask(1, "a"), ask(2, "a"), ask(3, "b"))
    waits(trie, order, ask(4, "bx"), ask(5, "by"))
    assert arrival_of(order.best(0.0)) == 3


def test_a_weight_that_shrank_counts_where_it_matters() -> None:
    trie, order = new("dfs")
    gone = [ask(n, "a") for n in (1, 2, 3)]
    waits(trie, order, *gone, ask(4, "a"), ask(5, "b"), ask(6, "b"))
    for request in gone:
        order.discard(request)
        trie.remove(request)
    assert all_in_order(order) == [5, 6, 4]
