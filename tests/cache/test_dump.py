from __future__ import annotations

import sys

from radix_engine.cache import DEFAULT, Namespace, dump, pack
from tests.cache.trees import hold, ids, lease_of, make_cache, store, take


def test_a_dump_shows_tokens_blocks_locks_hits_ages_and_heads() -> None:
    now = 10.0
    cache = make_cache(16, 4, clock=lambda: now)
    trunk = store(cache, [*ids(8, 1), *ids(4, 2)])
    now = 12.0
    lease = hold(cache, [*ids(8, 1), *ids(8, 3)])
    now = 15.0
    lease_of(cache, [*ids(8, 1), *ids(8, 3), 0])
    own = tuple(lease.blocks()[2:])
    root, namespace, *below = dump(cache, 17.5, head_tokens=3)
    assert (root.parent, root.tokens, root.blocks, root.locks, root.head) == (None, 0, (), 0, ())
    assert (namespace.parent, namespace.tokens, namespace.namespace) == (0, 0, DEFAULT)
    assert [(node.index, node.parent, node.tokens, node.blocks) for node in below] == [
        (2, 1, 8, tuple(trunk[:2])),
        (3, 2, 4, tuple(trunk[2:])),
        (4, 2, 8, own),
    ]
    assert [(node.locks, node.hits, node.idle_s) for node in below] == [
        (2, 2, 0.0),
        (0, 0, 7.5),
        (2, 1, 0.0),
    ]
    assert [node.head for node in below] == [tuple(ids(3, 1)), tuple(ids(3, 2)), tuple(ids(3, 3))]


def test_a_dump_shows_ghosts_blocks_in_flight_and_retentions() -> None:
    now = 10.0
    cache = make_cache(16, 4, clock=lambda: now)
    store(cache, ids(12, 1))
    cache.evict(2)
    lease = lease_of(cache, ids(9, 2))
    cache.announce(lease, pack(ids(8, 2)), take(cache, 2))
    cache.retain(pack(ids(4, 1)), seconds=30.0)
    now = 14.0
    one = max(dump(cache, now), key=lambda node: node.ghost_tokens)
    assert (one.tokens, one.ghost_tokens, len(one.blocks), one.in_flight) == (8, 8, 0, 0)
    kept = next(node for node in dump(cache, now) if node.retained and node.tokens)
    assert (kept.tokens, kept.ghost_tokens, kept.retained, kept.retained_s) == (4, 0, 1, 26.0)
    flying = next(node for node in dump(cache, now) if node.in_flight)
    assert (flying.tokens, len(flying.blocks), flying.in_flight, flying.locks) == (8, 2, 2, 1)


def test_a_tenants_dump_shows_no_other_namespace() -> None:
    cache = make_cache(16, 4)
    for seed, tenant in enumerate(("one", "other", None)):
        lease = cache.lease(cache.match(pack(ids(9, seed)), Namespace(tenant=tenant)))
        cache.publish(lease, pack(ids(8, seed)), take(cache, 2))
    for seed, tenant in enumerate(("one", "other", None)):
        heads = [node.head for node in dump(cache, 0.0, scope=tenant) if node.head]
        assert heads == [tuple(ids(8, seed))]
    assert len([node for node in dump(cache, 0.0) if node.head]) == 3


def test_parents_come_before_their_children_and_each_node_once() -> None:
    cache = make_cache(64, 4)
    for prompt in ([1, 2], [1, 3], [1, 3, 4], [2], [1], [2, 2, 2], [1, 2, 7, 7]):
        store(cache, [token for token in prompt for _ in range(4)])
    nodes = dump(cache, 0.0)
    assert [node.index for node in nodes] == list(range(len(nodes)))
    assert all(node.parent is not None and node.parent < node.index for node in nodes[1:])
    blocks = [block for node in nodes for block in node.blocks]
    assert len(blocks) == len(set(blocks)) == cache.pool.tree_blocks
    assert sum(node.tokens for node in nodes) == 4 * len(blocks)


def test_a_tree_deeper_than_the_call_stack_can_be_dumped() -> None:
    deep = sys.getrecursionlimit() + 50
    cache = make_cache(deep, 1)
    leases = [hold(cache, [1] * end) for end in range(1, deep + 1)]
    assert len(leases) == deep
    nodes = dump(cache, 0.0)
    assert [node.parent for node in nodes] == [None, *range(deep + 1)]


def test_ages_are_never_negative() -> None:
    cache = make_cache(4, 4, clock=lambda: 100.0)
    store(cache, ids(4, 1))
    assert [node.idle_s for node in dump(cache, 99.0)] == [0.0, 0.0, 0.0]
