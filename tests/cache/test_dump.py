from __future__ import annotations

import sys

from radix_engine.cache import NodeDump, PrefixCache, dump
from tests.cache.trees import hold, ids, lease_of, store


def test_a_dump_shows_tokens_blocks_locks_hits_ages_and_heads() -> None:
    now = 10.0
    cache = PrefixCache(16, 4, clock=lambda: now)
    trunk = store(cache, [*ids(8, 1), *ids(4, 2)])
    now = 12.0
    lease = hold(cache, [*ids(8, 1), *ids(8, 3)])
    now = 15.0
    lease_of(cache, [*ids(8, 1), *ids(8, 3), 0])
    own = tuple(lease.blocks()[2:])
    root, *below = dump(cache.root, 17.5, head_tokens=3)
    assert (root.parent, root.tokens, root.blocks, root.locks, root.head) == (None, 0, (), 0, ())
    assert root.idle_s == 2.5
    assert below == [
        NodeDump(1, 0, 8, tuple(trunk[:2]), locks=2, hits=2, idle_s=2.5, head=tuple(ids(3, 1))),
        NodeDump(2, 1, 8, own, locks=2, hits=1, idle_s=2.5, head=tuple(ids(3, 3))),
        NodeDump(3, 1, 4, tuple(trunk[2:]), locks=0, hits=0, idle_s=7.5, head=tuple(ids(3, 2))),
    ]


def test_parents_come_before_their_children_and_each_node_once() -> None:
    cache = PrefixCache(64, 4)
    for prompt in ([1, 2], [1, 3], [1, 3, 4], [2], [1], [2, 2, 2], [1, 2, 7, 7]):
        store(cache, [token for token in prompt for _ in range(4)])
    nodes = dump(cache.root, 0.0)
    assert [node.index for node in nodes] == list(range(len(nodes)))
    assert all(node.parent is not None and node.parent < node.index for node in nodes[1:])
    blocks = [block for node in nodes for block in node.blocks]
    assert len(blocks) == len(set(blocks)) == cache.pool.tree_blocks
    assert sum(node.tokens for node in nodes) == 4 * len(blocks)


def test_a_tree_deeper_than_the_call_stack_can_be_dumped() -> None:
    deep = sys.getrecursionlimit() + 50
    cache = PrefixCache(deep, 1)
    leases = [hold(cache, [1] * end) for end in range(1, deep + 1)]
    assert len(leases) == deep
    nodes = dump(cache.root, 0.0)
    assert [node.parent for node in nodes] == [None, *range(deep)]


def test_ages_are_never_negative() -> None:
    cache = PrefixCache(4, 4, clock=lambda: 100.0)
    store(cache, ids(4, 1))
    assert [node.idle_s for node in dump(cache.root, 99.0)] == [0.0, 0.0]
