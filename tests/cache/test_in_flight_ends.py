"""Blocks in flight next to a flush, and where ghosts were."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radix_engine.cache import (
    Cause,
    Lease,
    Namespace,
    PrefixCache,
    Reason,
    pack,
)
from tests.cache.requests import Clock, why
from tests.cache.steps import ALL_OF_IT, SIZE, STARTS, announce, announce_after
from tests.cache.trees import (
    assert_sound,
    edges,
    hold,
    ids,
    lease_of,
    make_cache,
    store,
    stored,
    take,
)

# Flushed trees -----------------------------------------------------------------------------------


@pytest.mark.parametrize("computed", [True, False])
@pytest.mark.parametrize("attached", [0, 2])
@pytest.mark.parametrize("start", STARTS)
def test_a_step_ends_in_the_old_tree_when_it_is_flushed_in_between(
    start: Callable[[PrefixCache], tuple[Lease, int]], attached: int, computed: bool
) -> None:
    cache = make_cache(40, SIZE)
    owner, before = start(cache)
    assert announce_after(cache, owner, ALL_OF_IT)
    others = [lease_of(cache, [*ALL_OF_IT, 0]) for _ in range(attached)]
    cache.flush()
    assert stored(cache, ALL_OF_IT) == 0
    assert_sound(cache, [owner, *others])
    if computed:
        cache.commit(owner)
    else:
        cache.withdraw(owner)
    assert owner.num_tokens == (20 if computed else before)
    assert [cache.is_broken(lease) for lease in others] == [not computed] * attached
    assert stored(cache, ALL_OF_IT) == 0
    assert_sound(cache, [owner, *others])
    new = hold(cache, ALL_OF_IT)
    while others:
        cache.release(others.pop())
        assert_sound(cache, [owner, *others, new])
    cache.release(owner)
    assert cache.detached == []
    assert cache.pool.tree_blocks == 5
    assert_sound(cache, [new])


def test_a_lease_from_before_a_flush_announces_nothing() -> None:
    cache = make_cache(8, SIZE)
    leases = [hold(cache, ids(4, 1)), lease_of(cache, ids(9, 2))]
    cache.flush()
    blocks = take(cache, 1)
    for lease in leases:
        assert not cache.announce(lease, pack(ids(4, 3)), blocks)
        assert_sound(cache, leases, [blocks])


def test_what_is_in_flight_at_a_flush_is_no_ghost_and_what_was_computed_is() -> None:
    cache = make_cache(16, SIZE)
    owner = hold(cache, ids(8, 1))
    assert announce_after(cache, owner, ids(16, 1))
    cache.flush()
    assert cache.ghost_tokens == 8
    end = why(cache, ids(17, 1))
    assert (end.reason, end.cause, end.position, end.lost_tokens) == (
        Reason.EVICTED,
        Cause.FLUSH,
        0,
        8,
    )
    assert_sound(cache, [owner])


@pytest.mark.parametrize("ghost_blocks", [0, 1, 100])
def test_a_namespace_whose_blocks_are_all_in_flight_leaves_nothing_in_the_new_tree(
    ghost_blocks: int,
) -> None:
    cache = make_cache(16, SIZE, ghost_blocks=ghost_blocks)
    cache.mark_public(pack(ids(4, 1)))
    store(cache, ids(4, 1))
    owner = cache.lease(cache.match(pack(ids(13, 1)), Namespace(tenant="a")))
    assert announce_after(cache, owner, ids(12, 1))
    cache.flush()
    assert cache.ghost_tokens == min(ghost_blocks, 1) * SIZE
    assert_sound(cache, [owner])
    cache.commit(owner)
    cache.release(owner)
    assert cache.pool.free_blocks == 16
    assert_sound(cache)


# Ghosts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored_blocks", [0, 1, 2, 3])
def test_a_ghost_that_was_announced_and_withdrawn_is_a_ghost_again(stored_blocks: int) -> None:
    clock = Clock()
    cache = make_cache(8, SIZE, clock=clock, ttl=10.0)
    store(cache, ids(16, 1))
    if stored_blocks:
        cache.evict(4 - stored_blocks)
        cause = Cause.CAPACITY
    else:
        clock.now = 20.0
        cache.expire()
        cause = Cause.TTL
    before = why(cache, ids(17, 1))
    assert tuple(before) == (Reason.EVICTED, stored_blocks * 4, cause, 16 - stored_blocks * 4, 0)
    assert cache.ghost_tokens == before.lost_tokens
    owner = announce(cache, ids(16, 1))
    assert cache.ghost_tokens == 0
    assert_sound(cache, [owner])
    cache.withdraw(owner)
    assert why(cache, ids(17, 1)) == before
    assert cache.ghost_tokens == before.lost_tokens
    assert_sound(cache, [owner])
    cache.release(owner)
    assert_sound(cache)
    lease = announce(cache, ids(16, 1))
    cache.commit(lease)
    assert why(cache, ids(17, 1)).reason is Reason.FULL
    assert_sound(cache, [lease])


def test_of_a_ghost_that_the_run_leaves_only_the_common_part_is_stored_again() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(16, 1))
    cache.evict(4)
    other = [*ids(8, 1), *ids(8, 2)]
    owner = announce(cache, other)
    assert cache.ghost_tokens == 8
    assert_sound(cache, [owner])
    cache.withdraw(owner)
    assert cache.ghost_tokens == 16
    assert why(cache, [*ids(16, 1), 0]).lost_tokens == 16
    assert why(cache, [*other, 0]).lost_tokens == 8, "the rest was never computed"
    assert_sound(cache, [owner])


@pytest.mark.parametrize("ghost_blocks", [0, 1, 2, 3])
def test_a_withdrawn_ghost_stays_within_the_budget(ghost_blocks: int) -> None:
    cache = make_cache(8, SIZE, ghost_blocks=ghost_blocks)
    store(cache, ids(16, 1))
    cache.evict(3)
    kept = cache.ghost_tokens
    assert kept <= ghost_blocks * 4
    owner = announce(cache, ids(16, 1))
    assert_sound(cache, [owner])
    cache.withdraw(owner)
    assert cache.ghost_tokens == kept
    assert stored(cache, ids(16, 1)) == 4
    assert_sound(cache, [owner])


def forget_all_ghosts(cache: PrefixCache) -> None:
    """Let others' ghosts push the present ones out."""
    for seed in range(50, 58):
        store(cache, ids(8, seed))
        cache.evict(2)


def test_what_was_never_computed_is_no_ghost_where_a_ghost_was_before() -> None:
    cache = make_cache(8, SIZE, ghost_blocks=4)
    store(cache, ids(16, 1))
    cache.evict(2)
    lease = lease_of(cache, ids(9, 1))
    forget_all_ghosts(cache)
    prompt = [*ids(8, 1), *ids(8, 2)]
    assert announce_after(cache, lease, prompt)
    cache.withdraw(lease)
    assert why(cache, [*prompt, 0]).reason is Reason.COLD
    assert_sound(cache, [lease])


def test_what_was_announced_after_a_ghost_is_not_remembered_with_it() -> None:
    cache = make_cache(8, SIZE)
    store(cache, ids(8, 1))
    cache.evict(1)
    owner = announce(cache, ids(8, 1))
    assert announce_after(cache, owner, ids(16, 1))
    assert_sound(cache, [owner])
    cache.withdraw(owner)
    assert why(cache, ids(17, 1)).lost_tokens == 4
    assert cache.ghost_tokens == 4
    assert_sound(cache, [owner])


def test_ghosts_that_come_back_push_out_older_ones_when_the_budget_is_full() -> None:
    cache = make_cache(8, SIZE, ghost_blocks=3)
    store(cache, ids(12, 1))
    cache.evict(3)
    owner = announce(cache, ids(12, 1))
    store(cache, ids(12, 2))
    cache.evict(3)
    assert cache.ghost_tokens == 12
    cache.withdraw(owner)
    assert cache.ghost_tokens == 12
    assert_sound(cache, [owner])
    assert why(cache, ids(13, 1)).lost_tokens == 12
    assert why(cache, ids(13, 2)).reason is Reason.COLD


def test_ghosts_below_what_is_in_flight_are_gone_after_a_flush() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(24, 1))
    cache.evict(6)
    owner = announce(cache, ids(8, 1))
    sibling = announce(cache, ids(16, 1))
    assert cache.ghost_tokens == 8
    cache.flush()
    assert cache.ghost_tokens == 0
    assert_sound(cache, [owner, sibling])
    cache.commit(owner)
    cache.release(owner)
    assert_sound(cache, [sibling])
    cache.release(sibling)
    assert cache.pool.free_blocks == 16
    assert_sound(cache)


@pytest.mark.parametrize("ghost_blocks", [0, 4])
def test_a_run_that_had_a_ghost_part_grows_in_place_like_any_other(ghost_blocks: int) -> None:
    cache = make_cache(8, SIZE, ghost_blocks=ghost_blocks)
    store(cache, ids(16, 1))
    cache.evict(2)
    owner = lease_of(cache, ids(17, 1))
    assert owner.num_tokens == 8
    for end in (16, 24):
        assert announce_after(cache, owner, ids(end, 1))
        cache.commit(owner)
        assert_sound(cache, [owner])
    grown = ids(24, 1)[8:] if ghost_blocks else ids(24, 1)  # the ghost was a node of its own
    assert grown in edges(cache)
