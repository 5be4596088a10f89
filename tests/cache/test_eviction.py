from __future__ import annotations

import random

import pytest

from radix_engine.cache import PrefixCache
from radix_engine.cache.audit import walk
from radix_engine.cache.node import Node
from tests.cache.trees import (
    assert_sound,
    edges,
    hold,
    ids,
    lease_of,
    make_cache,
    store,
    stored,
    take,
)


def test_an_empty_tree_gives_nothing_and_keeps_its_root() -> None:
    cache = make_cache(4, 4)
    root = cache.root
    assert cache.evict(1) == 0
    assert cache.root is root
    assert_sound(cache)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_the_tail_of_a_lone_entry_goes_first(size: int) -> None:
    cache = make_cache(3, size)
    victims = set()
    for _ in range(200):
        blocks = store(cache, ids(3 * size, 1))
        taken = take(cache, 1)
        assert list(taken) == list(blocks[2:])
        assert stored(cache, ids(3 * size, 1)) == 2 * size
        victims.add(taken[0])
        cache.free(taken)
        assert_sound(cache)
    assert len(victims) == 1


@pytest.mark.parametrize("count", range(1, 9))
def test_no_more_is_evicted_than_is_asked_for(count: int) -> None:
    cache = make_cache(8, 4)
    for seed in range(4):
        store(cache, ids(8, seed))
    assert cache.evict(count) == count
    assert cache.pool.tree_blocks == 8 - count
    assert cache.counters.evicted_blocks == count
    assert_sound(cache)


def test_free_blocks_are_used_before_anything_is_evicted() -> None:
    cache = make_cache(6, 4)
    store(cache, ids(16, 1))
    first = take(cache, 2)
    assert cache.counters.evicted_blocks == 0
    second = take(cache, 1)
    assert cache.counters.evicted_blocks == 1
    assert stored(cache, ids(16, 1)) == 12
    assert_sound(cache, [], [first, second])


def test_the_least_recently_used_entry_goes_first() -> None:
    cache = make_cache(12, 4)
    for seed in (1, 2, 3):
        store(cache, ids(8, seed))
    cache.release(lease_of(cache, ids(9, 1)))
    cache.evict(2)
    assert [stored(cache, ids(8, seed)) for seed in (1, 2, 3)] == [8, 0, 8]
    cache.evict(2)
    assert [stored(cache, ids(8, seed)) for seed in (1, 2, 3)] == [8, 0, 0]


def test_an_entry_counts_as_used_until_its_lease_ends() -> None:
    cache = make_cache(12, 4)
    long = hold(cache, ids(8, 1))
    store(cache, ids(8, 2))
    cache.release(long)
    cache.evict(2)
    assert (stored(cache, ids(8, 1)), stored(cache, ids(8, 2))) == (8, 0)


def test_a_shared_head_outlives_its_branches() -> None:
    cache = make_cache(32, 4)
    head = ids(8, 1)
    for seed in range(2, 6):
        store(cache, [*head, *ids(8, seed)])
    assert cache.evict(8) == 8
    assert stored(cache, head) == 8
    cache.evict(2)
    assert_sound(cache)
    assert cache.pool.tree_blocks == 0


def test_too_many_blocks_are_not_allocated_and_nothing_is_evicted_for_them() -> None:
    cache = make_cache(8, 4)
    store(cache, ids(16, 1))
    held = hold(cache, ids(8, 2))
    assert cache.available_blocks == 6
    before = edges(cache), cache.pool.free_list(), cache.version
    assert cache.allocate(7) is None
    assert (edges(cache), cache.pool.free_list(), cache.version) == before
    assert cache.counters.evicted_blocks == 0
    blocks = take(cache, 6)
    assert cache.allocate(1) is None
    assert_sound(cache, [held], [blocks])


def test_an_evicted_tail_can_be_stored_again() -> None:
    cache = make_cache(4, 4)
    store(cache, ids(16, 1))
    cache.evict(3)
    assert stored(cache, ids(16, 1)) == 4
    store(cache, ids(16, 1))
    assert stored(cache, ids(16, 1)) == 16
    assert_sound(cache)


def naive_victims(cache: PrefixCache, count: int) -> list[int]:
    """The blocks that go, found by looking at the whole tree for each of them."""
    left = {id(node): (node, len(node.blocks)) for node in walk(cache.root) if node.blocks}
    victims: list[int] = []
    while len(victims) < count:

        def is_leaf(node: Node) -> bool:
            return not any(id(child) in left for child in node.children.values())

        leaves = [node for node, _ in left.values() if not node.pins and is_leaf(node)]
        if not leaves:
            break
        oldest = min(leaves, key=lambda node: node.tick)
        _, blocks = left[id(oldest)]
        victims.append(oldest.blocks[blocks - 1])
        left[id(oldest)] = (oldest, blocks - 1)
        if blocks == 1:
            del left[id(oldest)]
    return victims


@pytest.mark.parametrize("seed", range(6))
def test_victims_are_those_of_a_naive_search_for_the_oldest_leaf(seed: int) -> None:
    draw = random.Random(seed)
    cache = make_cache(60, 4)
    leases = []
    for _ in range(150):
        prompt = [draw.randrange(2) for _ in range(4 * draw.randrange(1, 6))]
        if draw.random() < 0.4:
            leases.append(lease_of(cache, prompt))
        elif cache.pool.free_blocks >= 5:
            leases.append(hold(cache, prompt))
        if leases and draw.random() < 0.8:
            cache.release(leases.pop(draw.randrange(len(leases))))
        count = draw.choice([0, 1, 2, 7])
        expected = naive_victims(cache, count)
        before = set(cache.pool.free_list())
        assert cache.evict(count) == len(expected)
        assert set(cache.pool.free_list()) - before == set(expected)
        assert_sound(cache, leases)
