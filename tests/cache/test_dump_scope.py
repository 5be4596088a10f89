"""A tenant's dump tells of that tenant's own nodes, and of public ones nothing but their tokens."""

from __future__ import annotations

import pytest

from radix_engine.cache import Lease, Namespace, NodeDump, PrefixCache, dump, pack
from tests.cache.requests import Clock, begin, serve
from tests.cache.trees import assert_sound, ids, make_cache, take

SIZE = 4
NOBODY, A, B = Namespace(), Namespace(tenant="a"), Namespace(tenant="b")
PUBLIC = ids(12, 1)


def cache_with(clock: Clock, *marked: list[int]) -> PrefixCache:
    cache = make_cache(128, SIZE, clock=clock)
    for path in marked or (PUBLIC,):
        cache.mark_public(pack(path))
    return cache


def shown(nodes: list[NodeDump]) -> list[tuple[int | None, int, tuple[int, ...]]]:
    return [(node.parent, node.tokens, node.head) for node in nodes]


def use(node: NodeDump) -> tuple[int, int, int, float, int, float | None]:
    return (
        *(node.in_flight, node.locks, node.hits, node.idle_s),
        *(node.retained, node.retained_s),
    )


NOTHING = (0, 0, 0, 0.0, 0, None)


def serve_beside(cache: PrefixCache, tokens: list[int], space: Namespace) -> None:
    """A whole request while others run."""
    cache.release(begin(cache, tokens, space))


def others_use(cache: PrefixCache, clock: Clock) -> list[Lease]:
    """All that other tenants can do with a public path."""
    leases = [begin(cache, [*PUBLIC, *ids(8, 20)], A), begin(cache, [*PUBLIC, 0], B)]
    clock.now += 1.0
    serve_beside(cache, [*PUBLIC[:4], *ids(9, 21)], A)  # which cuts it
    serve_beside(cache, [*PUBLIC[:10], *ids(9, 22)], B)
    cache.retain(pack(PUBLIC), 50.0, A)
    cache.retain(pack(PUBLIC[:8]), None, B)
    running = cache.lease(cache.match(pack([*PUBLIC, *ids(5, 23)]), B))
    assert cache.announce(running, pack(ids(4, 23)), take(cache, 1))
    return [*leases, running]


OWN_PROMPTS: list[list[int]] = [
    [*PUBLIC, *ids(8, 2)],
    [*PUBLIC, *ids(4, 3)],
    [*PUBLIC[:8], *ids(4, 4)],
    ids(8, 5),
    PUBLIC,
]


@pytest.mark.parametrize("own", [OWN_PROMPTS, OWN_PROMPTS[:1], OWN_PROMPTS[3:], OWN_PROMPTS[2:4]])
@pytest.mark.parametrize("asker", [NOBODY, Namespace(tenant="c")], ids=["nobody", "tenant"])
@pytest.mark.parametrize("later", [False, True])
def test_what_others_do_changes_nothing_in_a_tenants_dump(
    own: list[list[int]], asker: Namespace, later: bool
) -> None:
    clock = Clock()
    quiet, busy = cache_with(clock), cache_with(clock)
    for cache in (quiet, busy):
        serve(cache, PUBLIC, B)  # that a public path is stored all may know
        serve(cache, [0, 0, 0, 0], asker)
        if not later:
            for prompt in own:
                serve(cache, prompt, asker)
    clock.now = 3.0
    leases = others_use(busy, clock)
    if later:
        for cache in (quiet, busy):
            for prompt in own:
                serve_beside(cache, prompt, asker)
    clock.now = 5.0
    for head_tokens in (3, 10, 32):
        for _ in range(2):
            told = [
                dump(cache, clock.now, head_tokens, scope=asker.tenant) for cache in (quiet, busy)
            ]
            assert told[0] == told[1]
    assert_sound(busy, leases)
    while leases:
        busy.release(leases.pop())
        assert dump(busy, clock.now, scope=asker.tenant) == dump(quiet, 5.0, scope=asker.tenant)


def test_a_public_path_is_one_node_of_which_only_the_tokens_are_told() -> None:
    clock = Clock()
    cache = cache_with(clock)
    serve(cache, [*PUBLIC, *ids(8, 2)])
    serve(cache, [*PUBLIC, *ids(8, 3)])
    others_use(cache, clock)
    begin(cache, [*PUBLIC, *ids(8, 3), 0])
    clock.now = 9.0
    nodes = dump(cache, clock.now, scope=None)
    first, second = sorted([ids(8, 2), ids(8, 3)], key=pack)
    assert shown(nodes) == [
        (None, 0, ()),
        (0, 0, ()),
        (1, 12, tuple(PUBLIC)),
        (2, 8, tuple(first)),
        (2, 8, tuple(second)),
    ]
    assert [use(node) for node in nodes[:3]] == [NOTHING] * 3
    assert not any(node.blocks for node in nodes)
    by_head = {node.head: use(node) for node in nodes}
    assert by_head[tuple(ids(8, 2))] == (0, 0, 0, 9.0, 0, None)
    assert by_head[tuple(ids(8, 3))] == (0, 1, 0, 0.0, 0, None), "nor how many it has served"
    everything = {node.head: node for node in dump(cache, clock.now) if node.tokens}
    assert everything[tuple(PUBLIC[:4])].locks == 4, "an operator is told"


def test_where_a_public_path_ends_inside_a_node_its_owner_sees_both_parts() -> None:
    clock = Clock()
    cache = cache_with(clock)
    serve(cache, [*PUBLIC, *ids(8, 2)])
    cache.retain(pack([*PUBLIC, *ids(8, 2)]), 60.0)
    cache.release_retention(cache.retain(pack(ids(4, 1))))
    clock.now = 4.0
    *_, path, own = dump(cache, clock.now, scope=None)
    assert (path.tokens, path.head, use(path)) == (12, tuple(PUBLIC), NOTHING)
    assert (own.parent, own.tokens, own.head) == (path.index, 8, tuple(ids(8, 2)))
    assert use(own) == (0, 0, 0, 4.0, 1, 56.0)
    cache.release_retention(cache.retentions.held()[0])
    cache.evict(1)
    *_, path, own = dump(cache, clock.now, scope=None)
    assert [(part.tokens, part.ghost_tokens) for part in (path, own)] == [(12, 0), (8, 4)]
    cache.evict(2)
    *_, path, own = dump(cache, clock.now, scope=None)
    assert [(part.tokens, part.ghost_tokens) for part in (path, own)] == [(12, 4), (8, 8)]


def test_public_paths_that_fork_are_shown_as_they_fork() -> None:
    clock = Clock()
    one, two = [*PUBLIC[:8], *ids(8, 6)], [*PUBLIC[:8], *ids(4, 7)]
    cache = cache_with(clock, one, two)
    for path in (one, two):
        serve(cache, path, B)
    serve(cache, [*two, *ids(4, 8)])
    _, _, *nodes = dump(cache, 0.0, scope=None)
    trunk = (1, 8, tuple(PUBLIC[:8]))
    branches = [(2, 8, tuple(ids(8, 6))), (2, 4, tuple(ids(4, 7)))]
    tail = (4 if pack(one) < pack(two) else 3, 4, tuple(ids(4, 8)))
    if pack(one) < pack(two):
        assert shown(nodes) == [trunk, *branches, tail]
    else:
        assert shown(nodes) == [trunk, branches[1], tail, branches[0]]


def test_what_was_told_of_a_path_while_it_was_public_is_not_told_later_either() -> None:
    clock = Clock()
    cache = cache_with(clock)
    serve(cache, [*PUBLIC, *ids(4, 2)])
    held = begin(cache, [*PUBLIC, 0], A)
    cache.unmark_public(pack(PUBLIC))
    _, space, path, own = dump(cache, 7.0, scope=None)
    assert [use(node) for node in (space, path)] == [NOTHING] * 2
    assert use(own) == (0, 0, 0, 7.0, 0, None)
    cache.release(held)


def test_other_weights_and_adapters_have_public_paths_of_their_own() -> None:
    clock = Clock()
    cache = cache_with(clock)
    newer = Namespace(weights=1)
    serve(cache, [*PUBLIC, 0], newer)
    serve(cache, [*PUBLIC, 0], newer)
    _, space, own = dump(cache, 2.0, scope=None)
    assert (use(space), use(own)) == ((0, 0, 1, 2.0, 0, None),) * 2


def test_the_order_of_children_in_a_tenants_dump_is_not_that_of_their_use() -> None:
    orders = []
    for last in (2, 3, 4):
        cache = cache_with(Clock())
        for seed in (2, 3, 4, last):
            serve(cache, [*PUBLIC, *ids(8, seed), 0])
        orders.append([node.head for node in dump(cache, 0.0, scope=None) if node.tokens == 8])
    assert orders[0] == orders[1] == orders[2]
    assert len(orders[0]) == 3


def test_the_root_does_not_tell_how_long_ago_all_was_flushed() -> None:
    clock = Clock()
    cache = cache_with(clock)
    clock.now = 30.0
    assert [use(node) for node in dump(cache, 40.0, scope="a")] == [NOTHING]
    assert [node.idle_s for node in dump(cache, 40.0)] == [40.0]


def test_a_tenant_sees_what_it_stores_below_a_public_path_and_the_way_to_it() -> None:
    clock = Clock()
    forking = [*PUBLIC[:8], *ids(8, 6)]
    cache = cache_with(clock, PUBLIC, forking)
    serve(cache, [*forking, *ids(4, 7)], B)
    serve(cache, ids(8, 9))  # nobody's own, beside the public paths
    serve(cache, [*PUBLIC, *ids(8, 2)], A)
    serve(cache, [*PUBLIC[:4], *ids(4, 3)], A)
    serve(cache, [*PUBLIC, *ids(8, 2), 0], A)
    clock.now = 5.0
    nodes = dump(cache, clock.now, scope="a")
    assert [(node.parent, node.tokens, node.namespace) for node in nodes] == [
        *[(None, 0, None), (0, 0, NOBODY), (1, 4, None)],
        *[(2, 8, None), (3, 0, A), (4, 8, None)],
        *[(2, 0, A), (6, 4, None)],
    ]
    by_head = {node.head: node for node in nodes if node.tokens}
    assert set(by_head) == {tuple(part) for part in (PUBLIC[:4], PUBLIC[4:], ids(8, 2), ids(4, 3))}
    assert use(by_head[tuple(PUBLIC[:4])]) == use(by_head[tuple(PUBLIC[4:])]) == NOTHING
    assert use(by_head[tuple(ids(8, 2))]) == (0, 0, 1, 5.0, 0, None)
    assert not any(node.blocks for node in nodes)


def test_a_tenant_that_stores_nothing_below_a_public_path_sees_none_of_it() -> None:
    cache = cache_with(Clock())
    serve(cache, [*PUBLIC, *ids(8, 2)], A)
    serve(cache, PUBLIC, B)
    assert shown(dump(cache, 0.0, scope="b")) == [(None, 0, ())]


def test_a_salt_without_a_tenant_is_shown_to_operators_only() -> None:
    cache = cache_with(Clock())
    secret, of_tenant = Namespace(salt="s"), Namespace(tenant="a", salt="t")
    for space in (secret, of_tenant):
        serve(cache, [*PUBLIC, *ids(4, 2)], space)
        serve(cache, ids(8, 3), space)

    def spaces(scope: str | None) -> set[Namespace | None]:
        return {node.namespace for node in dump(cache, 0.0, scope=scope)}

    assert spaces(None) == {None, NOBODY}
    assert spaces("a") == {None, NOBODY, of_tenant}
    assert {node.namespace for node in dump(cache, 0.0)} == {None, NOBODY, secret, of_tenant}
