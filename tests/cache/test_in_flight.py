"""Blocks that a step announces before it has computed them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radix_engine.cache import (
    ALL,
    Cause,
    Lease,
    Namespace,
    OwnershipError,
    PrefixCache,
    Reason,
    Removed,
    TreeMirror,
    pack,
    token_array,
)
from radix_engine.cache.block_pool import FREE, IN_FLIGHT, PRIVATE, TREE
from radix_engine.cache.node import Node
from tests.cache.requests import Clock, reach, why
from tests.cache.trees import (
    assert_sound,
    covered,
    edges,
    hold,
    ids,
    lease_of,
    make_cache,
    publish,
    store,
    stored,
    take,
)

SIZE = 4


def announce_after(cache: PrefixCache, lease: Lease, tokens: list[int]) -> bool:
    """Announce the full blocks of ``tokens`` that follow the lease, in new private blocks."""
    run = tokens[lease.num_tokens : len(tokens) // SIZE * SIZE]
    blocks = take(cache, len(run) // SIZE)
    done = cache.announce(lease, pack(run), blocks)
    if not done:
        cache.free(blocks)
    return done


def announce(cache: PrefixCache, tokens: list[int]) -> Lease:
    """A request that enters the coming step with a whole number of blocks."""
    lease = lease_of(cache, [*tokens, 0])
    assert announce_after(cache, lease, tokens)
    return lease


def owners(cache: PrefixCache, lease: Lease) -> list[int]:
    return [cache.pool.owner_of(block) for block in lease.blocks()]


# What becomes of announced blocks ----------------------------------------------------------------


def test_announced_blocks_are_found_by_others_of_the_same_step() -> None:
    cache = make_cache(8, SIZE)
    lease = lease_of(cache, ids(9, 1))
    blocks = take(cache, 2)
    version = cache.version
    assert cache.announce(lease, pack(ids(8, 1)), blocks)
    assert cache.version > version
    assert lease.num_tokens == 8
    assert list(lease.blocks()) == list(blocks)
    other = lease_of(cache, ids(13, 1))
    assert other.num_tokens == 8
    assert list(other.blocks()) == list(blocks)
    assert (cache.pool.in_flight_blocks, cache.pool.tree_blocks) == (2, 0)
    assert cache.available_blocks == 6
    assert_sound(cache, [lease, other])


def test_committed_blocks_stay_stored() -> None:
    cache = make_cache(8, SIZE)
    owner = announce(cache, ids(8, 1))
    other = lease_of(cache, ids(13, 1))
    cache.commit(owner)
    assert owners(cache, other) == [TREE, TREE]
    assert_sound(cache, [owner, other])
    cache.release(owner)
    cache.release(other)
    assert stored(cache, ids(8, 1)) == 8
    assert cache.evict(8) == 2
    assert_sound(cache)


def test_a_commit_keeps_matches_good() -> None:
    cache = make_cache(8, SIZE)
    owner = announce(cache, ids(8, 1))
    match = cache.match(pack(ids(13, 1)))
    cache.commit(owner)
    lease = cache.lease(match)
    assert lease.num_tokens == 8
    assert_sound(cache, [owner, lease])


def test_a_lease_that_announced_nothing_commits_and_withdraws_nothing() -> None:
    cache = make_cache(8, SIZE)
    lease = hold(cache, ids(8, 1))
    version = cache.version
    cache.commit(lease)
    cache.withdraw(lease)
    assert (lease.num_tokens, cache.version) == (8, version)
    assert owners(cache, lease) == [TREE, TREE]
    assert_sound(cache, [lease])


def test_what_is_committed_is_not_withdrawn_later() -> None:
    cache = make_cache(8, SIZE)
    lease = announce(cache, ids(8, 1))
    cache.commit(lease)
    cache.commit(lease)
    cache.withdraw(lease)
    assert lease.num_tokens == 8
    assert cache.counters.withdrawn_blocks == 0
    assert announce_after(cache, lease, ids(16, 1))
    cache.withdraw(lease)
    assert lease.num_tokens == 8
    assert cache.counters.withdrawn_blocks == 2
    assert stored(cache, ids(16, 1)) == 8
    assert_sound(cache, [lease])


@pytest.mark.parametrize("steps", [(4, 8), (8, 16), (4, 12, 16)])
def test_a_prompt_announced_in_chunks_is_stored_as_one_run(steps: tuple[int, ...]) -> None:
    cache = make_cache(8, SIZE)
    lease = lease_of(cache, ids(17, 1))
    for end in steps:
        assert announce_after(cache, lease, ids(end, 1))
        assert_sound(cache, [lease])
        cache.commit(lease)
        assert_sound(cache, [lease])
    assert edges(cache) == [ids(steps[-1], 1)]


def test_two_announcements_of_one_lease_are_committed_and_withdrawn_together() -> None:
    cache = make_cache(8, SIZE)
    for finish, left in ((cache.withdraw, 0), (cache.commit, 16)):
        lease = announce(cache, ids(4, 1))
        assert announce_after(cache, lease, ids(16, 1))
        assert cache.pool.in_flight_blocks == 4
        assert_sound(cache, [lease])
        finish(lease)
        assert cache.pool.in_flight_blocks == 0
        assert (lease.num_tokens, stored(cache, ids(16, 1))) == (left, left)
        assert_sound(cache, [lease])
        cache.release(lease)


# What cannot be announced ------------------------------------------------------------------------


def test_what_is_stored_or_in_flight_already_is_not_announced() -> None:
    cache = make_cache(16, SIZE)
    holders = [hold(cache, ids(8, 1)), announce(cache, ids(8, 2))]
    for seed in (1, 2):
        late = cache.lease_nothing()
        blocks = take(cache, 3)
        before = cache.version, edges(cache), cache.pool.in_flight_blocks
        assert not cache.announce(late, pack(ids(12, seed)), blocks)
        assert (cache.version, edges(cache), cache.pool.in_flight_blocks) == before
        assert late.num_tokens == 0
        assert_sound(cache, [*holders, late], [blocks])
        cache.free(blocks)


def test_nothing_is_no_announcement() -> None:
    cache = make_cache(8, SIZE)
    lease = lease_of(cache, ids(9, 1))
    version = cache.version
    assert not cache.announce(lease, b"", token_array())
    assert cache.version == version
    assert_sound(cache, [lease])


def test_a_run_across_the_end_of_a_public_path_is_not_announced() -> None:
    cache = make_cache(8, SIZE)
    cache.mark_public(pack(ids(4, 1)))
    lease = cache.lease(cache.match(pack(ids(9, 1)), Namespace(tenant="one")))
    blocks = take(cache, 2)
    assert not cache.announce(lease, pack(ids(8, 1)), blocks)
    assert_sound(cache, [lease], [blocks])
    assert cache.announce(lease, pack(ids(4, 1)), blocks[:1])
    cache.commit(lease)
    assert cache.announce(lease, pack(ids(8, 1)[4:]), blocks[1:])
    assert_sound(cache, [lease])
    assert reach(cache, ids(8, 1), Namespace(tenant="other")) == 4


def test_blocks_that_are_not_the_requests_own_are_refused_before_anything_changes() -> None:
    cache = make_cache(8, SIZE)
    holder = hold(cache, ids(4, 1))
    lease = lease_of(cache, ids(9, 2))
    mine = take(cache, 1)
    for wrong in ([*mine, *holder.blocks()], [*holder.blocks(), *mine], [*mine, *mine]):
        with pytest.raises(OwnershipError):
            cache.announce(lease, pack(ids(8, 2)), token_array(wrong))
        assert lease.num_tokens == 0
        assert edges(cache) == [ids(4, 1)]
        assert_sound(cache, [holder, lease], [mine])
    with pytest.raises(ValueError, match="do not fill 1 blocks"):
        cache.announce(lease, pack(ids(8, 2)), mine)
    cache.release(lease)
    with pytest.raises(OwnershipError, match="released"):
        cache.announce(lease, pack(ids(4, 2)), mine)
    assert_sound(cache, [holder], [mine])


# The order within a step -------------------------------------------------------------------------


def test_who_attached_to_a_prefix_commits_after_its_owner() -> None:
    cache = make_cache(16, SIZE)
    owner = announce(cache, ids(8, 1))
    middle = announce(cache, ids(16, 1))
    last = announce(cache, ids(24, 1))
    assert (middle.num_tokens, last.num_tokens) == (16, 24)
    for early in (last, middle):
        with pytest.raises(OwnershipError, match="in flight: commit that first"):
            cache.commit(early)
        assert cache.pool.in_flight_blocks == 6
        assert_sound(cache, [owner, middle, last])
    for lease in (owner, middle, last):
        cache.commit(lease)
        assert_sound(cache, [owner, middle, last])
    assert cache.pool.tree_blocks == 6


def test_who_announced_publishes_only_after_the_commit() -> None:
    cache = make_cache(8, SIZE)
    lease = announce(cache, ids(8, 1))
    reader = lease_of(cache, ids(13, 1))
    blocks = take(cache, 1)
    for early in (lease, reader):
        with pytest.raises(OwnershipError, match="commit"):
            cache.publish(early, pack(ids(4, 2)), blocks)
        assert_sound(cache, [lease, reader], [blocks])
    cache.commit(lease)
    assert list(cache.publish(reader, pack(ids(4, 2)), blocks)) == list(blocks)
    assert_sound(cache, [lease, reader])


def test_nothing_in_flight_is_evicted_or_expires() -> None:
    clock = Clock()
    cache = make_cache(8, SIZE, clock=clock, ttl=10.0)
    store(cache, ids(8, 2))
    owner = announce(cache, ids(8, 1))
    clock.now = 100.0
    assert cache.expire() == 2
    assert cache.evict(8) == 0
    assert cache.allocate(7) is None
    assert stored(cache, ids(8, 1)) == 8
    assert_sound(cache, [owner])


# Withdrawing: each place in the tree where an announcement can begin, each kind of sibling --------

HEAD = ids(8, 1)
RUN = ids(12, 3)
ALL_OF_IT = [*HEAD, *RUN]


def in_a_fresh_namespace(cache: PrefixCache) -> tuple[Lease, int]:
    lease = lease_of(cache, [*ALL_OF_IT, 0])
    return lease, 0


def at_the_end_of_a_node(cache: PrefixCache) -> tuple[Lease, int]:
    """Another lease pins the node, so that the announcement becomes a node of its own."""
    store(cache, HEAD)
    return lease_of(cache, [*ALL_OF_IT, 0]), len(HEAD)


def inside_a_node(cache: PrefixCache) -> tuple[Lease, int]:
    store(cache, [*HEAD, *ids(8, 2)])
    return lease_of(cache, [*ALL_OF_IT, 0]), len(HEAD)


def grown_in_place(cache: PrefixCache) -> tuple[Lease, int]:
    return hold(cache, HEAD), len(HEAD)


def on_a_ghost(cache: PrefixCache) -> tuple[Lease, int]:
    store(cache, ALL_OF_IT)
    cache.evict(3)
    return lease_of(cache, [*ALL_OF_IT, 0]), len(HEAD)


STARTS = [in_a_fresh_namespace, at_the_end_of_a_node, inside_a_node, grown_in_place, on_a_ghost]

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
    untouched = lease_of(cache, [*HEAD[:4], 0])
    others = [attach(cache, *sibling) for sibling in siblings]
    assert_sound(cache, [owner, untouched, *others])
    if not computed:  # the untouched one attached to what is withdrawn, too
        others.insert(0, untouched)

    leases = [owner, untouched] if computed else [owner]
    if aborted:
        cache.release(owner)
        leases.remove(owner)
    else:
        cache.withdraw(owner)
        assert owner.num_tokens == computed
        assert list(owner.blocks()) == kept
        assert not cache.is_broken(owner)
    assert [cache.is_broken(lease) for lease in others] == [True] * len(others)
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
    assert (
        cache.evict(40)
        == cache.pool.num_blocks
        - (40 - cache.pool.free_blocks)
        - (40 - cache.counters.evicted_blocks)
        or cache.pool.free_blocks == 40
    )
    assert cache.pool.free_blocks == 40
    assert_sound(cache)
