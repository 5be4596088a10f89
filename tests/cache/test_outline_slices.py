"""A look at the tree in slices, while the tree changes between them: nothing is told that was never
so, nothing twice, and nothing of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache import (
    Lease,
    Namespace,
    Outline,
    OutlineWalk,
    PrefixCache,
    RetentionRefused,
    Scope,
    outline,
    outline_walk,
    pack,
    unpack,
)
from radix_engine.cache.node import Node
from tests.cache.trees import assert_sound, hold, ids, lease_of, make_cache, store, take

SIZE = 2
ONE, TWO = Namespace(tenant="one"), Namespace(tenant="two")
Position = tuple[bytes, bytes]  # a namespace, and all tokens up to the end of a block


class Uses:
    """Random use of a cache by two tenants, whose tokens differ: one has 1 to 3, the other 11 to
    13. ``seen``: all nodes there have been since `watch`, as (start, run, blocks, hits)."""

    def __init__(self, data: st.DataObject, *, withdraws: bool) -> None:
        self.cache = make_cache(40, SIZE)
        self.cache._tree.ghosts.budget = 30
        self.data = data
        self.held: list[Lease] = []
        self.started: list[tuple[Lease, list[int]]] = []
        self.withdraws = withdraws
        self.watch()

    def watch(self) -> None:
        """Forget what has been before."""
        self.seen: set[tuple[int, bytes, int, int]] = set()
        self.all = self.always = dict(self._positions())
        self.note()

    def note(self) -> None:
        """Take down what there is now."""
        for top in (self.cache.root, *self.cache._tree.detached):
            for node in nodes_below(top):
                self.seen.add((node.start, bytes(node.run), len(node.blocks), node.hits))
        now = dict(self._positions())
        self.all = {**self.all, **now}
        self.always = {each: True for each in self.always if each in now}

    def use(self) -> None:
        """One random use."""
        kinds = ["store", "store", "hold", "release", "evict", "retain", "start"]
        kind = self.data.draw(st.sampled_from([*kinds, *(["withdraw"] * self.withdraws)]))
        if kind == "evict":
            self.cache.evict(self.data.draw(st.integers(1, 8)))
        elif kind in ("release", "withdraw") and self.held + [each for each, _ in self.started]:
            self._end(kind)
        elif kind in ("store", "hold", "retain", "start"):
            self._prompt(kind)
        self.note()

    def _prompt(self, kind: str) -> None:
        space, base = self.data.draw(st.sampled_from([(ONE, 0), (TWO, 10)]))
        sizes = st.lists(st.integers(1, 3), min_size=SIZE, max_size=12)
        tokens = [base + each for each in self.data.draw(sizes)]
        tokens = tokens[: len(tokens) // SIZE * SIZE]
        if kind == "retain":
            with suppress(RetentionRefused):
                self.cache.retain(pack(tokens), 60.0, space)
            return
        lease = self.cache.lease(self.cache.match(pack([*tokens, 0]), space))
        if kind != "start" and lease.node.in_flight:
            self.cache.release(lease)
            return
        rest = tokens[lease.num_tokens :]
        blocks = self.cache.allocate(len(rest) // SIZE)
        if blocks is None:
            self.cache.release(lease)
        elif kind == "start" and self.cache.announce(lease, pack(rest), blocks):
            self.started.append((lease, rest))
        else:
            if kind == "start":
                self.cache.free(blocks)
            else:
                self.cache.publish(lease, pack(rest), blocks)
            self.held.append(lease) if kind == "hold" else self.cache.release(lease)

    def _end(self, kind: str) -> None:
        if self.started and (kind == "withdraw" or not self.held):
            last = len(self.started) - 1
            place = self.data.draw(st.integers(0, last)) if kind == "withdraw" else 0
            lease, _ = self.started.pop(place)
            if kind == "release" and not self.cache.is_broken(lease):
                self.cache.commit(lease)
            self.cache.release(lease)
        elif self.held:
            self.cache.release(self.held.pop(self.data.draw(st.integers(0, len(self.held) - 1))))

    def _positions(self) -> Iterator[tuple[Position, bool]]:
        """Each block that is known, and whether it is stored."""
        todo = [(self.cache.root, b"", b"")]
        while todo:
            node, space, path = todo.pop()
            space = space if node.namespace is None else node.namespace.key
            run, size = bytes(node.run), SIZE * 4
            for at in range(0, len(run), size):
                yield (space, path + run[: at + size]), at < len(node.blocks) * size
            todo.extend((child, space, path + run) for child in node.children.values())


def nodes_below(top: Node) -> Iterator[Node]:
    todo = [top]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(node.children.values())


def told_tokens(seen: Outline) -> int:
    shown = sum(node.tokens for node in seen.nodes)
    return shown + sum(fold.tokens for fold in seen.folds.values())


def walked(uses: Uses, scope: Scope) -> Outline:
    """The outline, with uses of the cache between its slices, which are as small as can be."""
    uses.watch()
    walk = OutlineWalk(uses.cache, scope)
    while (seen := walk.advance(0.0)) is None:
        if uses.data.draw(st.integers(0, 2)) == 0:
            uses.use()
    return seen


@pytest.mark.parametrize("least_looks", [3, 1000])
@pytest.mark.parametrize("withdraws", [False, True])
@given(data=st.data(), limit=st.sampled_from([1, 3, 6, 40]), victims=st.sampled_from([0, 4]))
@settings(max_examples=120, deadline=None)
def test_all_that_is_told_was_so_while_it_was_looked_at_and_nothing_counts_twice(
    least_looks: int, withdraws: bool, data: st.DataObject, limit: int, victims: int
) -> None:
    uses = Uses(data, withdraws=withdraws)
    for _ in range(data.draw(st.integers(1, 25))):
        uses.use()
    tenant = data.draw(st.sampled_from([None, "one", "two"]))
    tells = None if tenant is None else lambda space: space.tenant == tenant
    with patch.multiple(outline_walk, _LEAST_LOOKS=least_looks, _LOOKS_EACH=1):
        seen = walked(uses, Scope(limit, tells=tells, head_tokens=100, victims=victims))
    assert len(seen.nodes) <= limit
    for place, node in enumerate(seen.nodes):
        assert node.parent is None or node.parent < place
        assert (node.start, node.head, node.blocks, node.hits) in uses.seen
        if node.namespace is not None:
            assert tenant in (None, node.namespace.tenant)
        if tenant is not None:
            assert {token > 10 for token in unpack(node.head)} <= {tenant == "two"}
    for place, fold in seen.folds.items():
        shown = sum(node.parent == place for node in seen.nodes)
        is_hiding = tenant is not None and place == 0  # where the namespaces are
        most = 1 if is_hiding else seen.nodes[place].children
        assert (0 if is_hiding and not fold.is_whole else 1) <= fold.nodes <= most - shown
    if not withdraws:
        mine = [
            [key for key in found if tenant is None or (key[1][0] > 10) == (tenant == "two")]
            for found in (uses.always, uses.all)
        ]
        low, high = (SIZE * len(each) for each in mine)
        assert told_tokens(seen) <= high
        if all(fold.is_whole for fold in seen.folds.values()):
            assert told_tokens(seen) >= low
    for lease in [*uses.held, *(each for each, _ in uses.started)]:
        uses.cache.release(lease)
    assert_sound(uses.cache)


@given(data=st.data(), limit=st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_slices_of_a_tree_that_does_not_change_tell_what_one_look_tells(
    data: st.DataObject, limit: int
) -> None:
    uses = Uses(data, withdraws=True)
    for _ in range(data.draw(st.integers(1, 25))):
        uses.use()
    walk = OutlineWalk(uses.cache, Scope(limit))
    slices = 1
    while (seen := walk.advance(0.0)) is None:
        slices += 1
    assert seen == outline(uses.cache, Scope(limit))
    assert slices >= min(limit, len(seen.nodes)) // 2


def advanced(cache: PrefixCache, scope: Scope, slices: int) -> OutlineWalk:
    """A walk after so many of its smallest slices."""
    walk = OutlineWalk(cache, scope)
    for _ in range(slices):
        assert walk.advance(0.0) is None
    return walk


def test_a_run_that_is_cut_before_it_is_looked_at_is_told_as_its_parts() -> None:
    cache = make_cache(64, 4)
    store(cache, ids(16, 1))
    walk = advanced(cache, Scope(10, victims=0), 4)  # the namespace's children are known by then
    store(cache, [*ids(8, 1), *ids(8, 50)])
    seen = walk.advance(1.0)
    assert seen is not None
    assert [(node.start, node.tokens) for node in seen.nodes[2:]] == [(0, 8), (8, 8), (8, 8)]


def test_a_run_that_is_cut_after_it_was_looked_at_is_told_as_it_was() -> None:
    cache = make_cache(64, 4)
    store(cache, [*ids(16, 1), *ids(4, 30)])
    store(cache, [*ids(16, 1), *ids(4, 40)])
    walk = advanced(cache, Scope(3, victims=0), 5)
    assert [node.tokens for node in walk._seen] == [0, 0, 16]
    store(cache, [*ids(8, 1), *ids(8, 50)])
    seen = walk.advance(1.0)
    assert seen is not None
    assert [(node.start, node.tokens) for node in seen.nodes[2:]] == [(0, 16)]
    assert (seen.folds[2].nodes, seen.folds[2].tokens) == (2, 8)


def test_a_victim_that_is_cut_while_what_is_above_it_is_shown_is_told_with_both_parts() -> None:
    cache = make_cache(256, 4)
    for seed in (1, 2):  # a fork, of which the first branch goes first
        store(cache, [*ids(8, 300), *ids(8, seed)])
    for seed in range(20, 40):  # newer and larger
        store(cache, ids(32, seed))
    walk = advanced(cache, Scope(12, victims=1), 1)
    while all(node.head != pack(ids(8, 300)) for node in walk._seen):
        assert walk.advance(0.0) is None
    place = len(walk._seen) - 1
    store(cache, [*ids(8, 300), *ids(4, 1), *ids(4, 90)])
    seen = walk.advance(1.0)
    assert seen is not None
    parts = [(n.parent, n.start, n.tokens, n.victim) for n in seen.nodes[place + 1 :]]
    assert parts == [(place, 8, 4, None), (place + 1, 12, 4, 1)]


def test_what_has_gone_before_it_is_looked_at_is_left_out() -> None:
    cache = make_cache(64, 4)
    cache._tree.ghosts.budget = 0
    store(cache, ids(8, 1))
    store(cache, ids(8, 2))
    walk = advanced(cache, Scope(10, victims=0), 4)
    assert cache.evict(2) == 2
    seen = walk.advance(1.0)
    assert seen is not None
    assert [unpack(node.head) for node in seen.nodes[2:]] == [ids(8, 2)]
    assert seen.folds == {}


def test_after_a_flush_the_walk_tells_of_the_new_tree_alone() -> None:
    cache = make_cache(64, 4)
    store(cache, ids(8, 1))
    held = hold(cache, ids(8, 2))
    walk = advanced(cache, Scope(10), 4)
    cache.flush()
    store(cache, ids(4, 3))
    seen = walk.advance(0.0)
    assert seen is not None
    told = {node.head: (node.tokens, node.blocks, node.locks) for node in seen.nodes[2:]}
    expected = {pack(ids(8, seed)): (8, 0, 0) for seed in (1, 2)}
    assert told == {**expected, pack(ids(4, 3)): (4, 1, 0)}
    cache.release(held)


def test_a_victim_that_a_request_has_begun_to_use_is_marked_no_longer() -> None:
    cache = make_cache(64, 4)
    store(cache, ids(8, 1))
    store(cache, ids(8, 2))
    walk = advanced(cache, Scope(10), 1)
    lease = lease_of(cache, [*ids(8, 1), 0])
    seen = walk.advance(1.0)
    assert seen is not None
    assert sorted((n.locks, n.victim) for n in seen.nodes[2:]) == [(0, 2), (1, None)]
    cache.release(lease)


def test_what_others_have_below_a_public_path_is_not_counted() -> None:
    cache = make_cache(64, 4)
    cache.mark_public(pack(ids(8, 1)))
    for space in (ONE, TWO):
        run = pack([*ids(8, 1), *ids(4, 30)])
        lease = cache.lease(cache.match(run + pack([0]), space))
        cache.publish(lease, run[lease.num_tokens * 4 :], take(cache, 3 - lease.num_tokens // 4))
        cache.release(lease)
    mine = outline(cache, Scope(1, tells=lambda space: space.tenant in (None, "one")))
    assert [fold.tokens for fold in mine.folds.values()] == [8 + 4]
    assert [fold.tokens for fold in outline(cache, Scope(1)).folds.values()] == [8 + 4 + 4]


def test_only_what_is_below_a_node_is_told_with_what_is_above_it() -> None:
    cache = make_cache(64, 4)
    for seed in (1, 2):
        store(cache, [*ids(8, seed), *ids(4, 30)])
        store(cache, [*ids(8, seed), *ids(4, 40)])
    below = [Namespace().key, pack(ids(4, 1))]
    seen = outline(cache, Scope(10, below=below))
    assert [node.parent for node in seen.nodes] == [None, 0, 1, 2, 2]
    assert [node.tokens for node in seen.nodes] == [0, 0, 8, 4, 4]
    assert seen.nodes[2].head == pack(ids(8, 1))
    assert seen.folds == {}
    assert len(outline(cache, Scope(1, below=below)).nodes) == 3  # the last of these counts
    deep = outline(cache, Scope(10, below=below, depth=1))
    assert [node.tokens for node in deep.nodes] == [0, 0, 8, 4, 4]


@pytest.mark.parametrize("below", [[b"none"], [Namespace().key, pack(ids(4, 9))]])
def test_a_path_that_is_not_stored_is_not_found(below: list[bytes]) -> None:
    cache = make_cache(64, 4)
    store(cache, ids(8, 1))
    assert not outline(cache, Scope(10, below=below)).is_found
    assert outline(cache, Scope(10)).is_found


def test_a_path_into_a_namespace_that_is_not_told_is_not_found() -> None:
    cache = make_cache(64, 4)
    lease = cache.lease(cache.match(pack(ids(9, 1)), TWO))
    cache.publish(lease, pack(ids(8, 1)), take(cache, 2))
    cache.release(lease)
    mine = Scope(10, below=[TWO.key], tells=lambda space: space.tenant == "one")
    assert not outline(cache, mine).is_found
    assert outline(cache, Scope(10, below=[TWO.key])).is_found
