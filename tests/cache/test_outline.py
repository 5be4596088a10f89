"""The tree in outline: bounded, in the right order, with totals of what is left out."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache import (
    DEFAULT,
    RULES,
    Fold,
    Namespace,
    PrefixCache,
    RetentionRefused,
    Scope,
    dump,
    outline,
    pack,
    unpack,
)
from radix_engine.cache.rehearsal import next_victims
from tests.cache.trees import assert_sound, hold, ids, lease_of, make_cache, store, take


def heads(cache: PrefixCache, limit: int = 100) -> list[list[int]]:
    return [unpack(node.head) for node in outline(cache, Scope(limit)).nodes if node.head]


def test_an_outline_with_room_for_all_says_what_a_dump_says() -> None:
    now = 10.0
    cache = make_cache(64, 4, clock=lambda: now)
    store(cache, [*ids(8, 1), *ids(4, 2)])
    store(cache, [*ids(8, 1), *ids(8, 3)])
    hold(cache, ids(12, 50))
    cache.retain(pack(ids(8, 1)), seconds=30.0)
    cache.evict(2)
    now = 12.0
    dumped = dump(cache, now)
    seen = outline(cache, Scope(100))
    told = Counter(
        (n.start, n.tokens, n.blocks, n.locks, n.hits, n.retained, n.namespace) for n in seen.nodes
    )
    starts: dict[int | None, int] = {None: 0}
    for node in dumped:
        above = node.parent
        starts[node.index] = 0 if above is None else starts[above] + dumped[above].tokens
    assert told == Counter(
        (starts[n.index], n.tokens, len(n.blocks), n.locks, n.hits, n.retained, n.namespace)
        for n in dumped
    )
    assert seen.folds == {}
    assert [n.retained_until for n in seen.nodes if n.retained and n.tokens] == [40.0]
    assert {n.last_used for n in seen.nodes if n.locks} == {None}


def test_what_does_not_fit_is_folded_into_its_parent_with_all_below_it() -> None:
    cache = make_cache(256, 4)
    for seed in range(10):
        store(cache, [*ids(8, 0), *ids(4, 10 + seed), *ids(4, 40 + seed)])
        store(cache, [*ids(8, 0), *ids(4, 10 + seed), *ids(8, 80 + seed)])
    seen = outline(cache, Scope(3, victims=0))
    assert [node.tokens for node in seen.nodes] == [0, 0, 8]
    fold = seen.folds[2]
    assert (fold.nodes, fold.tokens, fold.blocks) == (10, 160, 40)
    assert fold.hits == sum(node.hits for node in dump(cache, 0.0)[3:])
    assert fold.is_whole
    whole = outline(cache, Scope(12, victims=0))
    assert sum(node.tokens for node in whole.nodes) + sum(
        each.tokens for each in whole.folds.values()
    ) == 8 + 10 * (4 + 4 + 8)


def test_the_newest_and_the_largest_come_first() -> None:
    cache = make_cache(256, 4)
    store(cache, ids(40, 1))  # the largest
    for seed in range(2, 30):
        store(cache, ids(4, seed))
    shown = heads(cache, 6)
    assert ids(32, 1) in shown
    assert ids(4, 29) in shown


def test_a_running_requests_nodes_are_shown_before_all_others() -> None:
    cache = make_cache(256, 4)
    hold(cache, ids(4, 99))
    for seed in range(30):
        store(cache, ids(4, seed))
    assert ids(4, 99) in [unpack(n.head) for n in outline(cache, Scope(4, victims=0)).nodes]


def test_what_was_not_looked_at_is_counted_and_said_to_be_more() -> None:
    cache = make_cache(4096, 4)
    for seed in range(2000):
        store(cache, [seed, seed, 1, 1])
    for victims in (2, 0):
        seen = outline(cache, Scope(10, victims=victims))
        assert len(seen.nodes) == 10
        fold = seen.folds[1]
        shown = sum(node.parent == 1 for node in seen.nodes)
        assert fold.nodes + shown == seen.nodes[1].children == 2000
        assert not fold.is_whole
    assert fold.tokens == 4 * (999 - shown)  # one look was at the namespace


def test_only_the_namespaces_that_are_asked_for_are_shown_or_counted() -> None:
    cache = make_cache(64, 4)
    for seed, tenant in enumerate(("one", "two")):
        lease = cache.lease(cache.match(pack(ids(9, seed)), Namespace(tenant=tenant)))
        cache.publish(lease, pack(ids(8, seed)), take(cache, 2))
        cache.release(lease)
    seen = outline(cache, Scope(50, tells=lambda space: space.tenant == "one"))
    assert [unpack(node.head) for node in seen.nodes if node.head] == [ids(8, 0)]
    assert seen.folds == {}
    cut = outline(cache, Scope(1, tells=lambda space: space.tenant == "one"))
    assert cut.folds[0].tokens == 8


def test_namespaces_that_nobody_looked_at_are_not_counted_as_those_asked_for() -> None:
    cache = make_cache(1100, 4)
    for number in range(1100):  # one of them, the first, is looked at last: 1000 looks are made
        space = Namespace(tenant="other" if number else "one", salt=str(number))
        lease = cache.lease(cache.match(pack(ids(5, 1)), space))
        cache.publish(lease, pack(ids(4, 1)), take(cache, 1))
        cache.release(lease)
    for victims in (0, 32):  # the first is evicted first, and shown therefore
        scope = Scope(50, tells=lambda space: space.tenant == "one", victims=victims)
        seen = outline(cache, scope)
        assert seen.folds == {0: Fold(nodes=0, is_whole=False)}
        assert len(seen.nodes) == (3 if victims else 1)
    everything = outline(cache, Scope(50))
    shown = sum(node.parent == 0 for node in everything.nodes)
    assert everything.folds[0].nodes + shown == 1100


def test_depth_counts_edges_and_folds_what_is_deeper() -> None:
    cache = make_cache(64, 4)
    for seed in (1, 2):
        store(cache, [*ids(8, 0), *ids(4, 20 + seed), *ids(4, 40 + seed)])
        store(cache, [*ids(8, 0), *ids(4, 20 + seed), *ids(4, 60 + seed)])
    seen = outline(cache, Scope(100, depth=2, victims=0))
    assert sorted(node.tokens for node in seen.nodes) == [0, 0, 4, 4, 8]
    assert [(f.nodes, f.tokens, f.is_whole) for f in seen.folds.values()] == [(2, 8, True)] * 2


def test_ghosts_and_blocks_in_flight_are_told() -> None:
    cache = make_cache(16, 4)
    store(cache, ids(12, 1))
    cache.evict(2)
    lease = lease_of(cache, ids(9, 2))
    cache.announce(lease, pack(ids(8, 2)), take(cache, 2))
    told = {
        node.start + node.tokens: node for node in outline(cache, Scope(50)).nodes if node.tokens
    }
    assert (told[12].blocks, told[12].tokens) == (1, 12)
    assert (told[8].blocks, told[8].in_flight) == (2, 2)


# The agent rule's choice depends on the time of the call, so what it said a moment ago may change.
@pytest.mark.parametrize("eviction", sorted(RULES.keys() - {"agent"}))
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_next_victims_are_those_that_eviction_takes(eviction: str, data: st.DataObject) -> None:
    cache = make_cache(48, 2, eviction=eviction)
    held = []
    prompt = st.lists(st.integers(1, 3), min_size=2, max_size=10)
    for tokens in data.draw(st.lists(prompt, min_size=1, max_size=8)):
        lease = cache.lease(cache.match(pack([*tokens, 0])), data.draw(st.integers(0, 3)))
        rest = tokens[lease.num_tokens : len(tokens) // 2 * 2]
        cache.publish(lease, pack(rest), take(cache, len(rest) // 2))
        held.append(lease) if data.draw(st.booleans()) else cache.release(lease)
    if cache.match(pack([*tokens, 0])).num_tokens >= 2 and data.draw(st.booleans()):
        with suppress(RetentionRefused):
            cache.retain(pack(tokens), 60.0)
    index = cache._tree.leaves
    leaves = set(index.leaves())
    expected = next_victims(cache._tree, 100)
    assert set(index.leaves()) == leaves
    some = data.draw(st.integers(0, len(expected)))  # parents among them may be left over
    assert next_victims(cache._tree, some) == expected[:some]
    assert set(index.leaves()) == leaves
    assert len(index.leaves()) == len(leaves)
    assert_sound(cache, held)
    assert next_victims(cache._tree, 100) == expected
    for victim in expected:
        before = len(victim.blocks)
        assert before
        assert cache.evict(before) == before
        assert not victim.blocks
    assert cache.evict(1) == 0


@pytest.mark.parametrize("eviction", sorted(RULES))
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_a_rehearsal_leaves_the_index_of_leaves_as_it_was(eviction: str, most: int) -> None:
    cache = make_cache(48, 2, eviction=eviction)
    store(cache, [1, 1, 2, 2])
    store(cache, [1, 1, 3, 3])
    index = cache._tree.leaves
    leaves = index.leaves()
    found = next_victims(cache._tree, most)
    assert sorted(node.start for node in found) == [0, 2, 2][-min(most, 3) :]
    assert set(index.leaves()) == set(leaves)
    assert len(index.leaves()) == 2
    assert cache.evict(3) == 3


def test_victims_are_numbered_and_shown_with_what_is_above_them() -> None:
    cache = make_cache(1024, 4)
    for seed in range(60):
        store(cache, [*ids(4, seed), *ids(4, 100 + seed)])
    seen = outline(cache, Scope(40))
    victims = sorted((n.victim, unpack(n.head)) for n in seen.nodes if n.victim is not None)
    # Each path is stored as one node; the oldest goes first. A quarter of the places is theirs.
    expected = [(n, ids(4, n - 1) + ids(4, 99 + n)) for n in (1, 2, 3)]
    assert victims[:3] == expected
    assert {place for place, _ in victims} >= set(range(1, 9))
    assert seen.nodes[1].namespace == DEFAULT
