from __future__ import annotations

from itertools import combinations

import pytest

from radix_engine.cache import (
    ALL,
    DEFAULT,
    MatchEnd,
    Namespace,
    PrefixCache,
    Reason,
    Stored,
    dump,
    pack,
)
from radix_engine.cache.block_hash import split_hashes
from tests.cache.requests import reach, serve, why
from tests.cache.trees import assert_sound, ids, make_cache, take

A, B = Namespace(tenant="a"), Namespace(tenant="b")
PUBLIC = ids(8, 1)  # two blocks of 4


def public_cache(**options: object) -> PrefixCache:
    cache = make_cache(256, 4, **options)
    cache.mark_public(pack(PUBLIC))
    return cache


NAMESPACES = [
    DEFAULT,
    A,
    B,
    Namespace(salt="a"),
    Namespace(tenant="a", salt="s"),
    Namespace(tenant="a", salt="t"),
    Namespace(adapter="a"),
    Namespace(tenant="a", adapter="l@1"),
    Namespace(tenant="a", adapter="l@2"),
    Namespace(tenant="a", weights=1),
    Namespace(weights=1),
]


@pytest.mark.parametrize(
    ("one", "other"), list(combinations(NAMESPACES, 2)), ids=lambda space: repr(space)[10:-1]
)
def test_two_namespaces_share_nothing_either_way(one: Namespace, other: Namespace) -> None:
    for first, second in ((one, other), (other, one)):
        cache = make_cache(16, 4, partial_blocks=True)
        serve(cache, ids(16, 1), first)
        match = cache.match(pack(ids(17, 1)), second)
        assert (match.num_tokens, match.copy_rows, match.copy_source) == (0, 0, -1)
        serve(cache, ids(16, 1), second)
        assert reach(cache, ids(16, 1), first) == reach(cache, ids(16, 1), second) == 16
        assert cache.counters.duplicate_blocks == 0
        assert cache.pool.tree_blocks == 8


def test_an_equal_namespace_made_anew_shares() -> None:
    cache = make_cache(16, 4)
    serve(cache, ids(16, 1), Namespace(tenant="a", salt="s", adapter="l", weights=3))
    again = Namespace(tenant="a", salt="s", adapter="l", weights=3)
    assert reach(cache, ids(16, 1), again) == 16


@pytest.mark.parametrize("name", ["tenant", "salt", "adapter"])
def test_an_empty_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"an empty {name} separates nothing"):
        Namespace(**{name: ""})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Namespace(tenant="ab", salt="c"), Namespace(tenant="a", salt="bc")),
        (Namespace(tenant="a/b"), Namespace(tenant="a", salt="b")),
        (Namespace(tenant="a\0b"), Namespace(tenant="a", salt="b")),
        (Namespace(tenant="None"), DEFAULT),
        (Namespace(tenant="a", adapter="1"), Namespace(tenant="a", weights=1)),
        (Namespace(salt="x"), Namespace(adapter="x")),
        (Namespace(tenant="a", salt="-"), Namespace(tenant="a-")),
        (Namespace(weights=1), Namespace(weights=11)),
    ],
)
def test_names_that_would_join_to_the_same_text_stay_apart(
    one: Namespace, other: Namespace
) -> None:
    assert one.key != other.key
    assert one.digest() != other.digest()
    cache = make_cache(16, 4)
    serve(cache, ids(8, 1), one)
    assert reach(cache, ids(8, 1), other) == 0


def test_new_weights_miss_everything_old_and_old_blocks_leave_in_time() -> None:
    cache = make_cache(8, 4)
    serve(cache, ids(16, 1), Namespace(weights=0))
    assert reach(cache, ids(16, 1), Namespace(weights=1)) == 0
    assert why(cache, ids(16, 1), Namespace(weights=1)).reason is Reason.COLD
    for seed in range(4):
        serve(cache, ids(8, seed), Namespace(weights=1))
    assert reach(cache, ids(16, 1), Namespace(weights=0)) == 0
    assert cache.pool.tree_blocks == 8


def test_a_namespace_that_is_empty_again_leaves_the_tree() -> None:
    cache = make_cache(8, 4, ghost_blocks=0)
    serve(cache, ids(16, 1), A)
    assert len(cache.root.children) == 1
    assert cache.evict(8) == 4
    assert cache.root.children == {}
    assert_sound(cache)


# Nothing that is told of one shows another's


def test_a_reason_never_tells_what_another_tenant_stores() -> None:
    cache = make_cache(64, 4, partial_blocks=True)
    serve(cache, ids(16, 1), A)
    for prompt in (ids(17, 1), [*ids(6, 1), *ids(6, 9)], ids(3, 1)):
        for space in (B, DEFAULT, Namespace(tenant="b", salt="s"), Namespace(salt="a")):
            empty = make_cache(64, 4, partial_blocks=True)
            assert why(cache, prompt, space) == why(empty, prompt, space)
    cache.evict(256)
    assert why(cache, ids(17, 1), B) == MatchEnd(Reason.COLD, 0)


OTHERS: list[tuple[Namespace, list[int]]] = [
    (space, [*PUBLIC[:common], *ids(16, seed)])
    for space in (A, Namespace(tenant="a", salt="s"), Namespace(salt="s"))
    for common, seed in ((8, 2), (8, 3), (4, 2), (6, 5), (0, 2))
]


@pytest.mark.parametrize("asker", [B, DEFAULT], ids=["tenant", "nobody"])
@pytest.mark.parametrize("partial", [False, True])
def test_what_others_store_below_a_public_path_changes_nothing_that_is_told(
    asker: Namespace, partial: bool
) -> None:
    quiet, busy = (public_cache(partial_blocks=partial) for _ in range(2))
    mine = [[*PUBLIC, *ids(8, 2)], [*PUBLIC, *ids(4, 7)], [*PUBLIC[:4], *ids(6, 8)]]
    for cache in (quiet, busy):
        for prompt in mine:
            serve(cache, prompt, asker)
    for space, prompt in OTHERS:
        serve(busy, prompt, space)
    # Their computations in flight, too.
    lease = busy.lease(busy.match(pack([*PUBLIC, *ids(8, 6)]), A))
    assert busy.announce(lease, pack(ids(8, 6)), take(busy, 2))
    for prompt in [p for _, p in OTHERS] + mine + [[*PUBLIC, *ids(8, 6)], PUBLIC]:
        for length in range(1, len(prompt) + 1):
            for tail in ([], [499, 499]):
                asked = [*prompt[:length], *tail]
                ends = [why(cache, asked, asker) for cache in (quiet, busy)]
                assert ends[0] == ends[1], asked
                assert reach(quiet, asked, asker) == reach(busy, asked, asker)
                rows = [c.match(pack(asked), asker).copy_rows for c in (quiet, busy)]
                assert rows[0] == rows[1]


def test_what_everybody_computes_below_a_public_path_is_not_told_to_a_tenant() -> None:
    cache = public_cache(partial_blocks=True)
    serve(cache, PUBLIC)
    lease = cache.lease(cache.match(pack([*PUBLIC, *ids(8, 2)])))
    assert cache.announce(lease, pack(ids(8, 2)), take(cache, 2))
    asked = [*PUBLIC, *ids(3, 2), 0, 0]
    assert why(cache, asked, A) == MatchEnd(Reason.COLD, 8)
    cache.commit(lease)
    assert why(cache, asked, A) == MatchEnd(Reason.COLD, 8)
    assert why(cache, asked) == MatchEnd(Reason.DIVERGED, 11, branch_tokens=16)
    assert_sound(cache, [lease])


def test_no_rows_are_copied_out_of_another_namespaces_block() -> None:
    cache = public_cache(partial_blocks=True)
    serve(cache, [*PUBLIC, *ids(8, 2)])
    serve(cache, [*PUBLIC, *ids(8, 2)], A)
    for prompt in ([*PUBLIC, *ids(3, 2), 0, 0], [*PUBLIC[:6], 0, 0, 0]):
        match = cache.match(pack(prompt), B)
        assert (match.copy_rows, match.copy_source) == (0, -1)
    mine = cache.lease(cache.match(pack([*PUBLIC, *ids(8, 2), 0]), A)).blocks()
    match = cache.match(pack([*PUBLIC, *ids(3, 2), 0, 0]), A)
    assert (match.copy_rows, match.copy_source) == (3, mine[2])


def test_a_tenants_events_tell_nothing_of_others() -> None:
    cache = public_cache(events=True)
    everything, mine = cache.subscribe(ALL), cache.subscribe("a")
    serve(cache, ids(8, 4), B)
    serve(cache, [*PUBLIC, *ids(8, 2)], B)
    serve(cache, ids(8, 5))
    assert mine.since(1) == []
    serve(cache, [*PUBLIC, *ids(8, 2)], A)
    serve(cache, ids(8, 6), Namespace(tenant="a", salt="s"))
    serve(cache, ids(8, 4), B)
    told = mine.since(1)
    assert [event.sequence for event in told] == [1, 2]
    for event, run in zip(told, (ids(8, 2), ids(8, 6)), strict=True):
        assert isinstance(event, Stored)
        assert (event.namespace.tenant, event.run, event.blocks) == ("a", pack(run), ())
    cache.evict(256)
    removed = mine.since(3)
    assert {event.namespace.tenant for event in removed if hasattr(event, "namespace")} == {"a"}
    assert sum(len(split_hashes(e.hashes)) for e in removed if hasattr(e, "hashes")) == 4
    assert len(everything.since(1)) > len(mine.since(1))
    assert [e.namespace for e in cache.snapshot(mine).stored] == []


def test_a_tenants_dump_shows_that_tenants_namespaces_alone_and_no_block_ids() -> None:
    cache = public_cache()
    serve(cache, [*PUBLIC, *ids(8, 2)], B)
    serve(cache, ids(8, 3), B)
    serve(cache, ids(8, 4), A)
    serve(cache, ids(8, 5), Namespace(tenant="a", salt="s"))
    serve(cache, ids(8, 6))
    mine = dump(cache, 0.0, scope="a")
    spaces = {node.namespace for node in mine if node.namespace is not None}
    assert spaces == {A, Namespace(tenant="a", salt="s")}
    assert sorted(node.head for node in mine if node.head) == [tuple(ids(8, 4)), tuple(ids(8, 5))]
    assert all(node.blocks == () for node in mine)
    nobodys = dump(cache, 0.0, scope=None)
    heads = sorted(node.head for node in nobodys if node.head)
    assert heads == [tuple(PUBLIC), tuple(ids(8, 6))]
    everything = dump(cache, 0.0, scope=ALL)
    assert sum(len(node.blocks) for node in everything) == cache.pool.tree_blocks == 12
