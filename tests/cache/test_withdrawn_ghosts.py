"""Ghosts that were announced again, that others attached to, and that were then withdrawn: they are
ghosts as before, while those others still hold the blocks that were never computed."""

from __future__ import annotations

import pytest

from radix_engine.cache import Cause, Lease, MatchEnd, Namespace, PrefixCache, Reason, pack
from tests.cache.requests import Clock, serve, why
from tests.cache.steps import SIZE, announce, announce_after
from tests.cache.trees import assert_sound, ids, lease_of, make_cache, store, take

A, B = Namespace(tenant="a"), Namespace(tenant="b")
RUN = ids(24, 1)
LOST = MatchEnd(Reason.EVICTED, 0, Cause.CAPACITY, lost_tokens=24)


def evicted(cache: PrefixCache, tokens: list[int] = RUN) -> None:
    store(cache, tokens)
    cache.evict(len(tokens) // SIZE)


def let_go(cache: PrefixCache, leases: list[Lease]) -> None:
    while leases:
        cache.release(leases.pop(len(leases) // 2))
        assert_sound(cache, leases)
    assert cache.detached == []
    assert cache.pool.free_blocks == cache.pool.num_blocks


@pytest.mark.parametrize("held", [4, 8, 16])
@pytest.mark.parametrize("siblings", [1, 3])
def test_a_ghost_that_siblings_hold_through_a_withdrawal_stays_known(
    held: int, siblings: int
) -> None:
    cache = make_cache(32, SIZE)
    evicted(cache)
    owner = announce(cache, RUN[:16])
    others = [lease_of(cache, [*RUN[:held], 0]) for _ in range(siblings)]
    assert cache.ghost_tokens == 8
    cache.withdraw(owner)
    assert cache.ghost_tokens == 24
    assert why(cache, [*RUN, 0]) == LOST
    assert all(cache.is_broken(other) for other in others)
    assert_sound(cache, [owner, *others])
    let_go(cache, [owner, *others])
    assert why(cache, [*RUN, 0]) == LOST
    serve(cache, RUN)
    assert cache.ghost_tokens == 0
    assert why(cache, [*RUN, 0]) == MatchEnd(Reason.FULL, 24)


def test_what_a_sibling_announced_of_the_same_ghost_is_one_again_too() -> None:
    cache = make_cache(32, SIZE)
    evicted(cache)
    owner = announce(cache, RUN[:8])
    other = announce(cache, RUN[:20])
    third = announce(cache, [*RUN[:20], *ids(8, 9)])
    cache.withdraw(owner)
    assert cache.ghost_tokens == 24
    assert why(cache, [*RUN, 0]) == LOST
    assert why(cache, [*RUN[:20], *ids(8, 9), 0]).lost_tokens == 20, "the rest was never computed"
    assert_sound(cache, [owner, other, third])
    cache.withdraw(other)
    assert cache.ghost_tokens == 24
    assert_sound(cache, [owner, other, third])
    let_go(cache, [owner, other, third])
    assert why(cache, [*RUN, 0]) == LOST


def test_ghosts_that_fork_below_what_a_sibling_holds_stay_known_each() -> None:
    cache = make_cache(32, SIZE)
    for seed in (2, 3):
        store(cache, [*RUN[:8], *ids(8, seed)])
    cache.evict(6)
    owner = announce(cache, RUN[:8])
    other = lease_of(cache, [*RUN[:8], 0])
    cache.withdraw(owner)
    for seed in (2, 3):
        end = why(cache, [*RUN[:8], *ids(8, seed), 0])
        assert end == MatchEnd(Reason.EVICTED, 0, Cause.CAPACITY, lost_tokens=16)
    assert_sound(cache, [owner, other])
    let_go(cache, [owner, other])


def test_a_ghost_below_blocks_in_memory_stays_known_with_its_cause() -> None:
    clock = Clock()
    cache = make_cache(32, SIZE, clock=clock, ttl=10.0)
    store(cache, RUN)
    clock.now = 5.0
    cache.release(lease_of(cache, [*RUN[:8], 0]))
    clock.now = 11.0
    assert cache.expire() == 4
    owner = announce(cache, RUN)
    other = lease_of(cache, [*RUN[:12], 0])
    cache.withdraw(owner)
    assert why(cache, [*RUN, 0]) == MatchEnd(Reason.EVICTED, 8, Cause.TTL, lost_tokens=16)
    assert_sound(cache, [owner, other])


def test_ghosts_of_namespaces_below_a_withdrawn_public_path_stay_known() -> None:
    cache = make_cache(32, SIZE)
    public = ids(8, 5)
    cache.mark_public(pack(public))
    serve(cache, [*public, *ids(8, 2)], A)
    cache.evict(4)
    owner = cache.lease(cache.match(pack([*public, 0]), A))
    assert announce_after(cache, owner, public)
    new = cache.lease(cache.match(pack([*public, *ids(5, 3)]), B))
    assert cache.announce(new, pack(ids(4, 3)), take(cache, 1))
    cache.withdraw(owner)
    lost = MatchEnd(Reason.EVICTED, 0, Cause.CAPACITY, lost_tokens=16)
    assert why(cache, [*public, *ids(8, 2), 0], A) == lost
    assert why(cache, [*public, *ids(8, 2), 0], B).lost_tokens == 8
    assert why(cache, [*public, *ids(4, 3), 0], B).lost_tokens == 8, "the rest was never computed"
    assert_sound(cache, [owner, new])
    let_go(cache, [owner, new])


def test_what_other_sizes_would_have_hit_is_known_as_before() -> None:
    curves = []
    for withdrawn in (False, True):
        cache = make_cache(8, SIZE)
        evicted(cache)
        if withdrawn:
            owner = announce(cache, RUN[:16])
            other = lease_of(cache, [*RUN[:8], 0])
            cache.withdraw(owner)
            cache.release(other)
            cache.release(owner)
        for _ in range(2):
            serve(cache, RUN)
            serve(cache, ids(24, 3))
        curves.append(cache.hit_rate_curve())
    assert curves[0] == curves[1]
    assert curves[0][4.0] > 0


@pytest.mark.parametrize("ghost_blocks", [0, 1, 2, 3, 5])
def test_ghosts_that_come_back_so_stay_within_the_budget(ghost_blocks: int) -> None:
    cache = make_cache(32, SIZE, ghost_blocks=ghost_blocks)
    evicted(cache)
    owner = announce(cache, RUN[:16])
    other = lease_of(cache, [*RUN[:8], 0])
    cache.withdraw(owner)
    assert cache.ghost_tokens <= ghost_blocks * SIZE
    assert why(cache, [*RUN, 0]).lost_tokens == cache.ghost_tokens
    assert_sound(cache, [owner, other])
    let_go(cache, [owner, other])
    if not cache.ghost_tokens:
        assert cache.root.children == {}


def test_the_payload_of_such_a_ghost_is_read_when_it_is_stored_again() -> None:
    cache = make_cache(32, SIZE)
    payload = b"".join(bytes([n] * 4) for n in range(16))
    lease = lease_of(cache, ids(16, 1))
    cache.publish(lease, pack(ids(16, 1)), take(cache, 4), payload)
    cache.release(lease)
    cache.evict(4)
    owner = announce(cache, ids(16, 1))
    other = lease_of(cache, [*ids(8, 1), 0])
    cache.withdraw(owner)
    for lease in (owner, other):
        cache.release(lease)
    serve(cache, ids(16, 1))
    assert lease_of(cache, [*ids(16, 1), 0]).payload() == payload
