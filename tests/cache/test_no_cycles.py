"""What leaves the tree is freed at once, without Python's garbage collector."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from radix_engine.cache import Lease, Namespace, PrefixCache, pack
from radix_engine.cache.audit import walk
from radix_engine.cache.child_order import ChildOrder
from radix_engine.cache.eviction import LruLeaves
from radix_engine.cache.ghosts import Ghosts
from radix_engine.cache.node import Node
from tests.cache.trees import assert_sound, hold, lease_of, make_cache, store, take

SIZE = 4
MANY = 40  # children: more than a node looks through without an order of them


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """The collector stands still and lists only what is made from now on."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def alive() -> Counter[type]:
    """Nodes and orders of children that exist; without those that stand for the ends of lists."""
    things = gc.get_objects()
    found = Counter(type(thing) for thing in things if isinstance(thing, Node | ChildOrder))
    found[Node] -= sum(isinstance(thing, Ghosts | LruLeaves) for thing in things)
    return found


def nothing_is_left_over(cache: PrefixCache) -> bool:
    """Whether every node and every order that exists is part of the tree or pinned."""
    roots = [cache.root, *cache.detached]
    nodes = [*roots, *(node for root in roots for node in walk(root))]
    orders = [order for node in nodes for order in (node.order, node.in_flight_order) if order]
    return alive() == Counter({Node: len(nodes), ChildOrder: len(orders)})


def prompt(number: int, blocks: int = 1) -> list[int]:
    """Prompts that differ from the first token on."""
    return [1000 + number, *range(SIZE * blocks - 1)]


def with_many_children(head: Sequence[int] = ()) -> PrefixCache:
    """A tree in which one node has many children and an order of them, and no room for ghosts."""
    cache = make_cache(200, SIZE, partial_blocks=True, ghost_blocks=0)
    for number in range(MANY):
        store(cache, [*head, *prompt(number)])
    cache.match(pack([*head, *prompt(MANY), 0]))
    assert alive()[ChildOrder] == 1
    return cache


def test_evicted_nodes_are_gone_once_their_ghosts_are() -> None:
    cache = make_cache(8, SIZE, ghost_blocks=4)
    for number in range(100):
        store(cache, prompt(number, 2))
        assert nothing_is_left_over(cache)
    assert len(list(walk(cache.root))) < 16


def test_a_namespace_that_was_emptied_is_gone_with_the_order_of_its_children() -> None:
    cache = with_many_children()
    cache.evict(200)
    assert nothing_is_left_over(cache)
    assert alive() == Counter({Node: 1})  # the root


def test_a_node_that_had_many_children_is_gone_with_the_order_of_them() -> None:
    cache = with_many_children(head=[7] * SIZE)
    store(cache, prompt(0))
    cache.evict(MANY + 1)
    assert nothing_is_left_over(cache)
    assert alive()[ChildOrder] == 0


def test_a_flushed_tree_is_gone() -> None:
    cache = with_many_children()
    cache.flush()
    assert nothing_is_left_over(cache)
    assert alive()[ChildOrder] == 0


def test_a_flushed_tree_that_was_pinned_is_gone_with_its_last_lease() -> None:
    cache = with_many_children(head=[7] * SIZE)
    lease = hold(cache, [*[7] * SIZE, *prompt(3), *prompt(4)])
    cache.flush()
    assert nothing_is_left_over(cache)
    cache.release(lease)
    del lease
    assert nothing_is_left_over(cache)
    assert_sound(cache)


def test_what_was_withdrawn_under_others_is_gone_with_their_leases() -> None:
    cache = make_cache(200, SIZE, partial_blocks=True, ghost_blocks=0)
    owner = lease_of(cache, [])
    assert cache.announce(owner, pack(prompt(0, 2)), take(cache, 2))
    others = [hold_in_flight(cache, [*prompt(0, 2), *prompt(number)]) for number in range(MANY)]
    cache.match(pack([*prompt(0, 2), *prompt(MANY)]))
    cache.withdraw(owner)
    assert nothing_is_left_over(cache)
    while others:
        cache.release(others.pop())
    cache.release(owner)
    del owner
    assert nothing_is_left_over(cache)
    assert alive() == Counter({Node: 1})
    assert_sound(cache)


def hold_in_flight(cache: PrefixCache, tokens: list[int]) -> Lease:
    """A sibling of the same step: it attaches, and announces the rest."""
    lease = lease_of(cache, tokens)
    run = tokens[lease.num_tokens :]
    assert cache.announce(lease, pack(run), take(cache, len(run) // SIZE))
    return lease


def test_evicting_and_storing_the_same_again_and_again_takes_no_memory() -> None:
    cache = make_cache(8, SIZE)
    sizes = []
    for _ in range(20):
        for number in range(12):
            store(cache, prompt(number))
        sizes.append(len(gc.get_objects()))
    assert max(sizes[2:]) <= sizes[1] + 2


def test_memory_stays_flat_under_long_use() -> None:
    now = 0
    cache = PrefixCache(64, SIZE, ttl=50.0, ghost_blocks=64, clock=lambda: float(now))
    rng = random.Random(1)
    tenants = [Namespace(tenant=name) for name in ("a", "b", "c")]
    running: list[Lease] = []
    sizes: list[int] = []
    for now in range(4000):
        tokens = pack([rng.randrange(3) for _ in range(rng.randrange(1, 40))])
        match = cache.match(tokens, rng.choice(tenants))
        cache.account(match, tokens)
        lease = cache.lease(match)
        running.append(lease)
        run = tokens[lease.num_tokens * 4 : len(tokens) // 4 // SIZE * SIZE * 4]
        blocks = cache.allocate(len(run) // (SIZE * 4))
        if blocks and cache.announce(lease, run, blocks):
            if rng.random() < 0.2:
                cache.withdraw(lease)
            else:
                cache.commit(lease)
        elif blocks:
            cache.free(blocks)
        while len(running) > rng.randrange(6):
            cache.release(running.pop(rng.randrange(len(running))))
        cache.expire()
        if now % 500 == 250:
            cache.flush()
        if now % 500 == 499:
            assert nothing_is_left_over(cache)
            sizes.append(len(gc.get_objects()))
    assert max(sizes[2:]) < 1.2 * max(sizes[:2])
