"""The audit is what the other tests rely on, so each kind of damage must be seen by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from radix_engine.cache import DEFAULT, PrefixCache, pack, token_array
from radix_engine.cache.audit import walk
from radix_engine.cache.child_order import ChildOrder
from radix_engine.cache.node import Node, new_root
from tests.cache.trees import hold, ids, lease_of, make_cache, store, take


def first_node(cache: PrefixCache) -> Node:
    return next(node for node in walk(cache.root) if node.blocks)


def lose_a_block(cache: PrefixCache) -> None:
    cache.pool.allocate(1)


def free_a_block_of_the_tree(cache: PrefixCache) -> None:
    cache.pool.free_from_tree(first_node(cache).blocks[:1])


def hold_a_block_twice(cache: PrefixCache) -> None:
    node = first_node(cache)
    node.blocks[1] = node.blocks[0]


def shorten_a_run(cache: PrefixCache) -> None:
    node = first_node(cache)
    node.run = node.run[:-4]


def lose_half_a_run(cache: PrefixCache) -> None:
    node = first_node(cache)
    node.run = node.run[:16]


def miscount_children(cache: PrefixCache) -> None:
    cache.root.children[DEFAULT.key].stored_children += 1


def miscount_ghosts(cache: PrefixCache) -> None:
    cache._tree.ghosts.blocks -= 1


def miscount_what_is_retained(cache: PrefixCache) -> None:
    cache._tree.retained.blocks += 1


def miscount_what_is_retained_of_a_tenant(cache: PrefixCache) -> None:
    cache._tree.retained.of["a"] += 1


def retain_without_a_retention(cache: PrefixCache) -> None:
    first_node(cache).retained = 1


def start_a_node_elsewhere(cache: PrefixCache) -> None:
    first_node(cache).start = 4


def use_what_has_a_ghost_part(cache: PrefixCache) -> None:
    cache.evict(1)
    node = first_node(cache)
    cache._tree.leaves.discard(node)
    node.pins = 1


def call_computed_blocks_in_flight(cache: PrefixCache) -> None:
    first_node(cache).in_flight = 1


def have_more_in_flight_than_there_are_blocks(cache: PrefixCache) -> None:
    first_node(cache).in_flight = 3


def call_blocks_in_flight_computed(cache: PrefixCache) -> None:
    lease = lease_of(cache, ids(5, 2))
    assert cache.announce(lease, pack(ids(4, 2)), take(cache, 1))
    lease.node.in_flight = 0


def spoil_the_books(cache: PrefixCache) -> None:
    cache.pool._counts[0] -= 1


def keep_more_ghosts_than_the_budget(cache: PrefixCache) -> None:
    cache.evict(1)
    cache._tree.ghosts.budget = 0


def empty_a_namespace(cache: PrefixCache) -> None:
    cache.root.children[DEFAULT.key].children.clear()


def change_a_key(cache: PrefixCache) -> None:
    cache.root.children[b"wrong"] = cache.root.children.popitem()[1]


def forget_a_parent(cache: PrefixCache) -> None:
    first_node(cache).parent = new_root(0.0)


def pin_once_more(cache: PrefixCache) -> None:
    first_node(cache).pins += 1


def pin_less_than_never(cache: PrefixCache) -> None:
    for node in walk(cache.root):
        node.pins = -1


def miscount_what_can_be_evicted(cache: PrefixCache) -> None:
    cache._tree.evictable += 1


def forget_a_leaf(cache: PrefixCache) -> None:
    cache._tree.leaves.clear()


def keep_a_leaf_that_is_gone(cache: PrefixCache) -> None:
    stranger = Node(b"\0" * 16, token_array(), cache.root, 0)
    stranger.tick = 999
    cache._tree.leaves.add(stranger, 0.0)


def keep_a_flushed_node_that_nobody_pins(cache: PrefixCache) -> None:
    old = cache.root
    cache.flush()
    child = Node(b"\0" * 16, take(cache, 1), old, 0)
    cache.pool.publish(child.blocks)
    old.children[bytes(child.run)] = child
    cache.detached.append(old)


def name_a_head_that_is_not_stored(cache: PrefixCache) -> None:
    cache._tree.heads["a"] = Counter({(1, b""): 1})


def unlist_a_ghost(cache: PrefixCache) -> None:
    cache.evict(2)
    cache._tree.ghosts.clear()
    cache._tree.ghosts.blocks = 2


def list_a_ghost_that_is_gone(cache: PrefixCache) -> None:
    cache._tree.ghosts.add(Node(b"\0" * 16, token_array(), cache.root, 0), 0)


def remember_a_child_that_is_none(cache: PrefixCache) -> None:
    node = first_node(cache)
    node.hot = Node(b"\0" * 16, token_array(), cache.root, 0)


def keep_an_order_of_other_children(cache: PrefixCache) -> None:
    cache.root.children[DEFAULT.key].order = ChildOrder([], lambda key: True)


def keep_an_order_of_others_in_flight(cache: PrefixCache) -> None:
    cache.root.children[DEFAULT.key].in_flight_order = ChildOrder([b"other"], lambda key: True)


def keep_a_hash_that_nobody_asked_for(cache: PrefixCache) -> None:
    first_node(cache).hashes = bytes(32)


def spare_what_the_index_does_not_know(cache: PrefixCache) -> None:
    cache._tree.leaves.spared[first_node(cache)] = None


DAMAGES: list[tuple[Callable[[PrefixCache], None], str]] = [
    (lose_a_block, "has 0 owners"),
    (free_a_block_of_the_tree, "has 2 owners"),
    (hold_a_block_twice, "has 2 owners"),
    (shorten_a_run, "holds no whole blocks"),
    (lose_half_a_run, "has 2 blocks"),
    (miscount_children, "children with blocks, it counts 2"),
    (miscount_ghosts, "0 blocks are ghosts, the cache counts -1"),
    (miscount_what_is_retained, "0 blocks are retained, the cache counts 1"),
    (miscount_what_is_retained_of_a_tenant, "not as many as the cache counts"),
    (retain_without_a_retention, "retained 1 times, by 0 retentions"),
    (start_a_node_elsewhere, "follows a parent that ends at 0"),
    (use_what_has_a_ghost_part, "is in use and has a ghost part"),
    (call_computed_blocks_in_flight, "held by the tree, in flight, but the pool's books say"),
    (have_more_in_flight_than_there_are_blocks, "has 2 blocks, 3 of them in flight"),
    (call_blocks_in_flight_computed, "held by the tree, but the pool's books say otherwise"),
    (spoil_the_books, "do not add up to 8"),
    (keep_more_ghosts_than_the_budget, "1 blocks are ghosts, the cache counts 1"),
    (empty_a_namespace, "is a namespace and empty"),
    (change_a_key, "not what its parent calls a child"),
    (forget_a_parent, "not what its parent calls a child"),
    (pin_once_more, "leases end there or below"),
    (pin_less_than_never, "pinned -1 times"),
    (miscount_what_can_be_evicted, "are evictable, the cache counts"),
    (forget_a_leaf, "leaves can be evicted, the index holds 0"),
    (keep_a_leaf_that_is_gone, "leaves can be evicted"),
    (keep_a_flushed_node_that_nobody_pins, "a detached tree keeps a node"),
    (name_a_head_that_is_not_stored, "the heads of the tenants' branches"),
    (unlist_a_ghost, "the ghost at token 0 is in no list"),
    (list_a_ghost_that_is_gone, "the list of ghosts names a node twice, or one that is not"),
    (remember_a_child_that_is_none, "has a child that was used last and is none"),
    (keep_an_order_of_other_children, "has an order of children that is not theirs"),
    (keep_an_order_of_others_in_flight, "has an order of children that is not theirs"),
    (keep_a_hash_that_nobody_asked_for, "has 32 bytes of hashes for 0 blocks"),
    (spare_what_the_index_does_not_know, "and the index says otherwise"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_damage_is_reported(damage: Callable[[PrefixCache], None], message: str) -> None:
    cache = make_cache(8, 4)
    store(cache, ids(8, 1))
    assert cache.audit([], []) == []
    damage(cache)
    problems = cache.audit([], [])
    assert any(message in problem for problem in problems), problems


def test_a_child_that_is_pinned_more_often_than_its_parent_is_reported() -> None:
    cache = make_cache(8, 4)
    store(cache, ids(16, 1))
    lease = lease_of(cache, ids(9, 1))
    lower = list(walk(cache.root))[-1]
    lower.pins = 2
    assert any("pinned 2 times, its parent 1" in problem for problem in cache.audit([], [lease]))


def test_private_blocks_that_are_not_private_are_reported() -> None:
    cache = make_cache(8, 4)
    private = take(cache, 2)
    assert cache.audit([private]) == []
    cache.free(private[:1])
    problems = cache.audit([private])
    assert any("held by a request, but the pool's books say" in problem for problem in problems)


def test_a_lease_that_is_not_as_deep_as_it_says_is_reported() -> None:
    cache = make_cache(8, 4)
    lease = hold(cache, ids(8, 1))
    lease.num_tokens = 4
    assert cache.audit([], [lease]) == ["a lease of 4 tokens ends 8 tokens deep"]


def test_a_node_that_is_retained_more_often_than_its_parent_is_reported() -> None:
    cache = make_cache(32, 4)
    store(cache, ids(16, 1))
    cache.release(lease_of(cache, ids(9, 1)))  # split
    cache.retain(pack(ids(8, 1)))
    assert cache.audit([], []) == []
    lower = next(node for node in walk(cache.root) if node.start == 8)
    lower.retained = 2
    problems = cache.audit([], [])
    assert any("is pinned 0 and retained 2 times" in problem for problem in problems), problems


def test_a_detached_tree_that_begins_in_the_middle_of_a_path_is_in_order() -> None:
    cache = make_cache(16, 4)
    owner = hold(cache, ids(8, 1))
    assert cache.announce(owner, pack(ids(16, 1)[8:]), take(cache, 2))
    sibling = lease_of(cache, ids(17, 1))
    cache.withdraw(owner)
    (root,) = cache.detached
    assert next(walk(root)).start == 8
    assert cache.audit([], [owner, sibling]) == []
