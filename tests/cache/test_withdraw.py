"""Announced blocks that are not computed after all, and those who attached to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radix_engine.cache import (
    Lease,
    Namespace,
    OwnershipError,
    PrefixCache,
    pack,
)
from radix_engine.cache.block_pool import FREE, IN_FLIGHT
from tests.cache.requests import reach
from tests.cache.steps import ALL_OF_IT, HEAD, SIZE, STARTS, announce, announce_after
from tests.cache.trees import (
    assert_sound,
    hold,
    ids,
    lease_of,
    make_cache,
    store,
    stored,
    take,
)

# What others of the same step hold of it: how many tokens they attach to, and announce themselves.
SIBLINGS: list[list[tuple[int, list[int]]]] = [
    [],
    [(20, [])],
    [(12, [])],
    [(20, ids(4, 7))],
    [(12, ids(4, 7)), (16, []), (20, ids(8, 8)), (20, [])],
]


def attach(cache: PrefixCache, tokens: int, more: list[int]) -> Lease:
    lease = lease_of(cache, [*ALL_OF_IT[:tokens], *more, 0])
    assert lease.num_tokens == tokens
    assert not more or announce_after(cache, lease, [*ALL_OF_IT[:tokens], *more])
    return lease


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("siblings", SIBLINGS)
@pytest.mark.parametrize("aborted", [True, False])
def test_a_withdrawn_run_is_found_by_nobody_and_its_blocks_come_back_with_the_last_that_holds_it(
    start: Callable[[PrefixCache], tuple[Lease, int]],
    siblings: list[tuple[int, list[int]]],
    aborted: bool,
) -> None:
    cache = make_cache(40, SIZE)
    owner, computed = start(cache)
    tree_blocks = cache.pool.tree_blocks
    kept = list(owner.blocks())
    assert announce_after(cache, owner, ALL_OF_IT)
    others = [attach(cache, *sibling) for sibling in siblings]
    untouched = [lease_of(cache, [*HEAD[:4], 0])] if computed else []
    assert_sound(cache, [owner, *untouched, *others])

    if aborted:
        cache.release(owner)
        leases = untouched
    else:
        cache.withdraw(owner)
        assert owner.num_tokens == computed
        assert list(owner.blocks()) == kept
        leases = [owner, *untouched]
    assert not any(cache.is_broken(lease) for lease in leases)
    assert all(cache.is_broken(lease) for lease in others)
    assert stored(cache, ALL_OF_IT) == computed
    assert cache.pool.tree_blocks == tree_blocks, "what was computed stays"
    assert_sound(cache, [*leases, *others])

    # Whoever comes next computes it anew, while broken siblings still hold the old blocks.
    again = announce(cache, ALL_OF_IT)
    cache.commit(again)
    assert_sound(cache, [*leases, *others, again])
    assert stored(cache, ALL_OF_IT) == 20

    while others:
        cache.release(others.pop(len(others) // 2))
        assert_sound(cache, [*leases, *others, again])
    assert cache.pool.in_flight_blocks == 0
    assert cache.detached == []
    assert stored(cache, ALL_OF_IT) == 20
    for lease in (again, *leases):
        cache.release(lease)
    cache.evict(40)
    assert cache.pool.free_blocks == 40
    assert_sound(cache)


def test_withdrawn_blocks_are_counted_and_free_at_once_where_nobody_else_holds_them() -> None:
    cache = make_cache(8, SIZE)
    owner = announce(cache, ids(12, 1))
    blocks = owner.blocks()
    sibling = lease_of(cache, ids(5, 1))
    cache.withdraw(owner)
    assert [cache.pool.owner_of(block) for block in blocks] == [IN_FLIGHT, FREE, FREE]
    assert cache.counters.withdrawn_blocks == 2
    assert cache.detached != []
    cache.release(sibling)
    assert [cache.pool.owner_of(block) for block in blocks] == [FREE, FREE, FREE]
    assert cache.counters.withdrawn_blocks == 3
    assert_sound(cache, [owner])


def test_a_withdrawal_makes_matches_stale_and_leaves_a_fresh_namespace_out_of_the_tree() -> None:
    cache = make_cache(8, SIZE)
    owner = announce(cache, ids(8, 1))
    match = cache.match(pack(ids(9, 1)))
    assert cache.root.children
    cache.withdraw(owner)
    assert cache.root.children == {}
    assert match.version != cache.version
    assert_sound(cache, [owner])


def test_a_withdrawn_run_below_a_public_path_leaves_the_path_alone() -> None:
    cache = make_cache(16, SIZE)
    cache.mark_public(pack(ids(8, 1)))
    store(cache, ids(8, 1))
    one, other = Namespace(tenant="one"), Namespace(tenant="other")
    for attached in (0, 1):
        owner = cache.lease(cache.match(pack(ids(17, 1)), one))
        assert owner.num_tokens == 8
        assert announce_after(cache, owner, ids(16, 1))
        siblings = [cache.lease(cache.match(pack(ids(17, 1)), one)) for _ in range(attached)]
        stranger = cache.lease(cache.match(pack(ids(17, 1)), other))
        assert [lease.num_tokens for lease in siblings] == [16] * attached
        assert stranger.num_tokens == 8
        assert_sound(cache, [owner, stranger, *siblings])
        cache.withdraw(owner)
        assert owner.num_tokens == 8
        assert not cache.is_broken(stranger)
        assert [reach(cache, ids(16, 1), who) for who in (one, other)] == [8, 8]
        assert_sound(cache, [owner, stranger, *siblings])
        for lease in (stranger, owner, *siblings):
            cache.release(lease)
    assert cache.pool.tree_blocks == 2
    assert_sound(cache)


def test_a_broken_lease_stores_and_announces_nothing_and_gives_its_own_back() -> None:
    cache = make_cache(16, SIZE)
    owner = announce(cache, ids(8, 1))
    other = announce(cache, ids(16, 1))
    cache.withdraw(owner)
    blocks = take(cache, 1)
    with pytest.raises(OwnershipError, match="in flight"):
        cache.commit(other)
    with pytest.raises(OwnershipError, match="withdrawn"):
        cache.announce(other, pack(ids(4, 2)), blocks)
    with pytest.raises(OwnershipError, match="withdrawn"):
        cache.publish(other, pack(ids(4, 2)), blocks)
    assert_sound(cache, [owner, other], [blocks])
    cache.withdraw(other)
    assert other.num_tokens == 8
    assert cache.is_broken(other)
    with pytest.raises(OwnershipError, match="withdrawn"):
        cache.publish(other, pack(ids(4, 2)), blocks)
    assert_sound(cache, [owner, other], [blocks])
    cache.release(other)
    cache.free(blocks)
    assert cache.pool.free_blocks == 16
    assert_sound(cache, [owner])


def test_one_that_attached_withdraws_its_own_part_alone() -> None:
    cache = make_cache(16, SIZE)
    owner = announce(cache, ids(8, 1))
    other = announce(cache, ids(16, 1))
    cache.release(other)
    assert stored(cache, ids(16, 1)) == 8
    assert_sound(cache, [owner])
    cache.commit(owner)
    cache.release(owner)
    assert stored(cache, ids(16, 1)) == 8
    assert_sound(cache)


def test_a_chain_of_siblings_is_broken_from_the_one_that_withdrew_on() -> None:
    cache = make_cache(32, SIZE)
    chain = [announce(cache, ids(8 * turn, 1)) for turn in range(1, 5)]
    cache.release(chain[1])
    assert [cache.is_broken(lease) for lease in (chain[0], *chain[2:])] == [False, True, True]
    cache.commit(chain[0])
    assert stored(cache, ids(32, 1)) == 8
    left = [chain[0], *chain[2:]]
    for index in (1, 1, 0):
        cache.release(left.pop(index))
        assert_sound(cache, left)
    assert (cache.pool.tree_blocks, cache.pool.free_blocks) == (2, 30)


def test_blocks_computed_in_earlier_chunks_survive_an_abort_and_the_rest_comes_back() -> None:
    cache = make_cache(8, SIZE)
    prompt = ids(24, 1)
    for chunks in (1, 2):
        lease = lease_of(cache, prompt)
        at_first = lease.num_tokens
        for chunk in range(1, chunks + 1):
            assert announce_after(cache, lease, prompt[: at_first + 8 * chunk])
            if chunk < chunks:
                cache.commit(lease)
        private = take(cache, 1)
        assert_sound(cache, [lease], [private])
        cache.free(private)
        cache.release(lease)
        assert stored(cache, prompt) == at_first + 8 * (chunks - 1)
        assert_sound(cache)
    for seed in range(20):  # others come and go through all blocks
        blocks = take(cache, 8)
        assert sorted(blocks) == list(range(8)), "each block is handed out once"
        cache.free(blocks)
        store(cache, ids(12, 100 + seed))
        assert_sound(cache)
    assert list(hold(cache, prompt).blocks()) != []
