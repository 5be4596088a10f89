from __future__ import annotations

import pytest

from radix_engine.cache import CacheMode, Namespace
from scheduler.prompt_trie import PromptTrie
from scheduler.request import Request
from scheduler.trie_node import TrieNode
from tests.scheduler.prompts import SIZE, ask, depth, never


def trie_of(*requests: Request, cached: int = 0) -> PromptTrie:
    trie = PromptTrie(SIZE)
    for request in requests:
        trie.add(request, lambda node: cached)
    return trie


def cached_in(trie: PromptTrie, *requests: Request) -> list[int]:
    return [trie.cached_tokens(request) for request in requests]


class Told:
    """The nodes that `on_change` was called with."""

    def __init__(self) -> None:
        self.nodes: list[TrieNode] = []

    def __call__(self, node: TrieNode) -> None:
        self.nodes.append(node)


# What is cached


def test_what_one_request_stores_is_cached_for_all_who_share_it() -> None:
    one, two, three = ask(1, "abcd"), ask(2, "abxy"), ask(3, "zz")
    trie = trie_of(one, two, three)
    trie.start(one)
    trie.cover(one, 12)
    assert cached_in(trie, one, two, three) == [12, 8, 0]


def test_blocks_that_are_not_whole_are_not_counted() -> None:
    one = ask(1, "abc")
    trie = trie_of(one)
    trie.cover(one, 7)
    assert cached_in(trie, one) == [4]
    assert trie.settle(one, 11)
    assert cached_in(trie, one) == [8]
    assert not trie.settle(one, 9)


def test_the_last_token_is_never_cached() -> None:
    prompt = Request(1, [7] * 8, 1)
    trie = trie_of(prompt)
    trie.cover(prompt, 8)
    assert cached_in(trie, prompt) == [4]


def test_a_block_that_ends_with_the_prompt_is_cached_for_longer_prompts() -> None:
    prompt, longer = Request(1, [97] * 8, 1), ask(2, "aaab")
    trie = trie_of(prompt, longer)
    trie.cover(prompt, 8)
    assert cached_in(trie, prompt, longer) == [4, 8]


def test_storing_less_than_is_cached_changes_nothing() -> None:
    one = ask(1, "abc")
    trie = trie_of(one, cached=8)
    trie.on_change = told = Told()
    trie.cover(one, 4)
    assert cached_in(trie, one) == [8]
    assert told.nodes == []


def test_what_a_look_up_does_not_find_is_cached_for_nobody() -> None:
    one, two, three = ask(1, "abcd"), ask(2, "abcx"), ask(3, "axyz")
    trie = trie_of(one, two, three)
    for request in (one, two, three):
        trie.cover(request, 16)
    assert trie.settle(two, 4)
    assert cached_in(trie, one, two, three) == [4, 4, 16]


def test_a_branch_is_evicted_without_its_siblings() -> None:
    one, two = ask(1, "ab"), ask(2, "ac")
    trie = trie_of(one, two)
    trie.cover(one, 8)
    trie.cover(two, 8)
    assert trie.settle(one, 4)
    assert cached_in(trie, one, two) == [4, 8]


def test_a_look_up_is_made_only_where_the_others_prompts_do_not_tell() -> None:
    one = ask(1, "abcd")
    trie = trie_of(one, cached=8)
    trie.add(ask(2, "abcd"), never)
    trie.add(ask(3, "abcx"), never)  # "c" is not cached: what follows cannot be
    trie.add(ask(4, "ab"), never)
    asked = []
    five = ask(5, "ax")
    trie.add(five, lambda node: asked.append(5) or 8)  # type: ignore[func-returns-value]
    assert asked == [5]
    assert cached_in(trie, five) == [8]


def test_a_new_prompts_look_up_that_finds_less_corrects_the_others() -> None:
    one, two = ask(1, "abcd"), ask(2, "abcx")
    trie = trie_of(one, cached=16)
    trie.add(two, lambda node: 4)
    assert cached_in(trie, one, two) == [4, 4]


def test_namespaces_share_nothing() -> None:
    one, two = ask(1, "ab"), ask(2, "ab", namespace=Namespace(tenant="t"))
    trie = trie_of(one, two)
    trie.start(one)
    trie.cover(one, 4)
    assert cached_in(trie, one, two) == [4, 0]
    assert not trie.blocked(two)


# Who is blocked


def test_a_prompt_is_blocked_while_its_next_block_is_computed() -> None:
    one, two, three = ask(1, "abcd"), ask(2, "abxy"), ask(3, "zz")
    trie = trie_of(one, two, three)
    trie.start(one)
    assert [trie.blocked(request) for request in (two, three)] == [True, False]
    trie.cover(one, 4)
    assert trie.blocked(two)
    trie.cover(one, 8)
    assert not trie.blocked(two)


def test_siblings_of_an_aborted_owner_are_free() -> None:
    one, two = ask(1, "abc"), ask(2, "abc")
    trie = trie_of(one, two)
    trie.start(one)
    trie.cover(one, 4)
    trie.remove(one)
    assert not trie.blocked(two)
    assert cached_in(trie, two) == [4]


def test_a_block_that_two_compute_stays_blocked_until_both_have_left() -> None:
    one, two, three = ask(1, "ab"), ask(2, "ac"), ask(3, "ad")
    trie = trie_of(one, two, three)
    trie.start(one)
    trie.start(two)
    trie.remove(one)
    assert trie.blocked(three)
    trie.remove(two)
    assert not trie.blocked(three)


def test_nobody_waits_for_what_a_request_has_behind_it() -> None:
    one, two = ask(1, "ab"), ask(2, "ab")
    trie = trie_of(one, two)
    trie.start(one)
    trie.cover(one, 8)
    trie.stores_no_more(one)
    trie.settle(two, 0)  # it left the cache, and is not computed again
    assert not trie.blocked(two)
    trie.stores_no_more(one)
    trie.remove(one)
    assert trie.root.running == 0


def test_nobody_waits_for_a_request_that_does_not_store() -> None:
    one, two = ask(1, "ab", mode=CacheMode.READ_ONLY), ask(2, "ab")
    trie = trie_of(one, two)
    trie.start(one)
    assert not trie.blocked(two)
    trie.remove(one)
    assert trie.root.running == 0


def test_a_request_that_does_not_read_is_never_blocked_nor_looked_up() -> None:
    one, two = ask(1, "ab"), ask(2, "ab", mode=CacheMode.BYPASS)
    trie = trie_of(one)
    trie.start(one)
    trie.add(two, never)
    trie.cover(one, 8)
    assert not trie.blocked(two)
    assert cached_in(trie, two) == [0]
    assert not trie.settle(two, 0)


# One change, one node


def test_a_head_that_thousands_share_is_published_and_evicted_in_one_change() -> None:
    requests = [ask(n, "h" * 16 + chr(1000 + n)) for n in range(1, 2001)]
    trie = trie_of(*requests)
    trie.start(requests[0])
    head = trie.ends[1].parent
    trie.on_change = told = Told()
    trie.cover(requests[0], 64)
    assert told.nodes == [head]
    assert cached_in(trie, *requests) == [64] * 2000
    assert trie.settle(requests[1], 32)
    assert told.nodes == [head, head]
    assert cached_in(trie, *requests) == [32] * 2000


def test_settling_looks_only_at_branches_that_are_cached() -> None:
    requests = [ask(n, "h" + chr(1000 + n)) for n in range(1, 101)]
    trie = trie_of(*requests)
    trie.cover(requests[6], 8)
    trie.on_change = told = Told()
    assert trie.settle(requests[0], 0)
    assert told.nodes == [trie.ends[7], trie.ends[7].parent]


# The shape of the trie


def test_a_prompt_that_leaves_another_splits_its_node() -> None:
    one, two = ask(1, "abcd"), ask(2, "abxy")
    trie = trie_of(one, cached=12)
    trie.on_change = told = Told()
    trie.add(two, lambda node: 8)
    lower, upper = trie.ends[1], trie.ends[1].parent
    assert told.nodes == [lower, upper]
    assert upper is not None
    assert (upper.start, upper.cover, upper.end) == (0, 32, 32)
    assert (lower.start, lower.cover, lower.end) == (32, 48, 64)
    assert (upper.waiting, lower.waiting) == (2, 1)


@pytest.mark.parametrize("cached", [0, 4, 8, 12, 16])
def test_splitting_and_merging_lose_nothing(cached: int) -> None:
    one, two, three = ask(1, "abcd"), ask(2, "abcd"), ask(3, "abxy")
    trie = trie_of(one, cached=cached)
    trie.add(three, lambda node: min(cached, 8))
    trie.add(two, never)
    trie.start(two)
    assert depth(trie) == 2
    assert cached_in(trie, one) == [cached]
    trie.remove(three)
    assert depth(trie) == 1
    assert cached_in(trie, one) == [cached]
    assert trie.blocked(one) == (cached < 16)
    trie.add(
        three, never if cached < 8 else lambda node: 8
    )  # finds its way through what was joined
    assert cached_in(trie, three) == [min(cached, 8)]
    assert depth(trie) == 2


def test_requests_that_leave_leave_no_nodes() -> None:
    long = ask(1, "a" * 40)
    others = [ask(n, "a" * n + "b") for n in range(2, 40)]
    trie = trie_of(long, *others)
    assert depth(trie) == 39
    trie.start(others[0])
    for request in others:
        trie.remove(request)
    assert depth(trie) == 1
    trie.remove(long)
    assert trie.root.children == {}
    assert (trie.root.waiting, trie.root.running, len(trie)) == (0, 0, 0)


def test_a_node_that_is_gone_keeps_no_prompt() -> None:
    one, two = ask(1, "ab"), ask(2, "ac")
    trie = trie_of(one, two)
    leaf, head = trie.ends[1], trie.ends[1].parent
    assert head is not None
    trie.remove(one)
    for node in (leaf, head):
        assert (node.source, node.run, node.parent, node.children) == (b"", None, None, {})


def test_a_shared_node_keeps_its_own_part_of_the_prompt_only() -> None:
    trie = trie_of(ask(1, "abcd"), ask(2, "abxy"))
    head = trie.ends[1].parent
    assert head is not None
    assert (head.source, head.run) == (b"", ask(1, "ab").run[:-4])
    trie.remove(ask(1, "abcd"))
    trie.add(ask(3, "abxyz"), lambda node: 0)
    assert trie.ends[2].source == b""


def test_a_running_requests_end_is_kept() -> None:
    one, two = ask(1, "ab"), ask(2, "abcd")
    trie = trie_of(one, two)
    trie.start(one)
    trie.remove(two)
    trie.cover(one, 8)
    assert cached_in(trie, one) == [8]


def test_prompts_nested_thousands_deep_need_no_recursion() -> None:
    requests = [Request(n, [5] * (3002 - n), 1) for n in range(1, 3001)]
    trie = PromptTrie(1)
    for request in requests:
        trie.add(request, lambda node: 0)
    longest, shortest = requests[0], requests[-1]
    trie.start(longest)
    assert trie.blocked(shortest)
    trie.cover(longest, 3000)
    assert cached_in(trie, longest, requests[999], shortest) == [3000, 2001, 1]
    assert trie.settle(shortest, 0)
    assert cached_in(trie, longest, requests[999], shortest) == [0, 0, 0]
    trie.remove(longest)
    assert not trie.blocked(requests[1])


def test_a_request_is_in_the_trie_once() -> None:
    one = ask(1, "a")
    trie = trie_of(one)
    with pytest.raises(ValueError, match="request 1 is in the trie already"):
        trie.add(one, never)


def test_removing_a_request_that_is_not_there_changes_nothing() -> None:
    trie = trie_of(ask(1, "a"))
    trie.remove(ask(2, "a"))
    assert len(trie) == 1
    assert trie.root.waiting == 1
