"""A match ends where a block is in flight only for those whom that block would serve."""

from __future__ import annotations

import pytest

from radix_engine.cache import Cause, Lease, MatchEnd, Namespace, PrefixCache, Reason, pack
from radix_engine.cache.child_order import FEW
from tests.cache.requests import serve, why
from tests.cache.steps import announce, announce_after
from tests.cache.trees import assert_sound, hold, ids, lease_of, make_cache, store, take

SIZE = 4
A, B = Namespace(tenant="a"), Namespace(tenant="b")
HEAD = ids(4, 1)


def in_flight_of(cache: PrefixCache, namespace: Namespace) -> Lease:
    lease = cache.lease(cache.match(pack(ids(5, 9)), namespace))
    assert cache.announce(lease, pack(ids(4, 9)), take(cache, 1))
    return lease


@pytest.mark.parametrize("partial", [True, False])
def test_what_another_tenant_has_in_flight_changes_no_reason(partial: bool) -> None:
    cache = make_cache(32, SIZE, partial_blocks=partial)
    serve(cache, ids(16, 1), A)
    cache.evict(2)
    prompts = [ids(17, 1), ids(8, 1), [*ids(8, 1), 0, 0], ids(9, 5)]
    alone = [why(cache, prompt, A) for prompt in prompts]
    assert alone[0] == MatchEnd(Reason.EVICTED, 8, Cause.CAPACITY, lost_tokens=8)
    lease = in_flight_of(cache, B)
    assert [why(cache, prompt, A) for prompt in prompts] == alone
    assert_sound(cache, [lease])


def test_a_ghost_behind_blocks_in_flight_of_ones_own_namespace_is_still_evicted() -> None:
    cache = make_cache(32, SIZE, partial_blocks=True)
    store(cache, ids(16, 1))
    cache.evict(2)
    announce(cache, ids(4, 9))
    assert why(cache, ids(17, 1)) == MatchEnd(Reason.EVICTED, 8, Cause.CAPACITY, lost_tokens=8)


def among(others: int, *, partial: bool) -> PrefixCache:
    """A head that goes on in so many computed branches, and in one that begins with token 7."""
    cache = make_cache(64, SIZE, partial_blocks=partial)
    store(cache, HEAD)
    for branch in range(others):
        store(cache, [*HEAD, 900 + branch, 0, 0, 0])
    store(cache, [*HEAD, 7, 7, 7, 7])
    return cache


@pytest.mark.parametrize("others", [2, FEW, FEW + 1])
@pytest.mark.parametrize("partial", [True, False])
def test_a_branch_in_flight_counts_only_where_it_shares_most(others: int, partial: bool) -> None:
    cache = among(others, partial=partial)
    lease = lease_of(cache, [*HEAD, 0])
    assert announce_after(cache, lease, [*HEAD, 7, 7, 8, 8])
    behind, equal = [*HEAD, 7, 7, 7, 6, 6, 6], [*HEAD, 7, 7, 6, 6, 6]
    ahead = [*HEAD, 7, 7, 8, 6, 6]
    for prompt, position in ((behind, 7), (equal, 6)):
        assert why(cache, prompt) == MatchEnd(Reason.DIVERGED, position, branch_tokens=8)
    assert why(cache, ahead) == MatchEnd(Reason.IN_FLIGHT, 6 if partial else 4)
    cache.commit(lease)
    assert why(cache, ahead) == MatchEnd(Reason.DIVERGED, 7, branch_tokens=8)
    assert_sound(cache, [lease])


@pytest.mark.parametrize("others", [2, FEW + 1])
def test_a_branch_that_was_withdrawn_or_announced_since_the_last_look_up_is_known(
    others: int,
) -> None:
    cache = among(others, partial=True)
    elsewhere = announce(cache, ids(4, 30))
    prompt = [*HEAD, 8, 8, 8, 6, 6]
    for _ in range(2):
        lease = lease_of(cache, [*HEAD, 0])
        assert announce_after(cache, lease, [*HEAD, 8, 8, 8, 8])
        assert why(cache, prompt) == MatchEnd(Reason.IN_FLIGHT, 4)
        assert why(cache, [*HEAD, 9, 9, 9, 9]).reason is Reason.DIVERGED
        cache.release(lease)
        assert why(cache, prompt).reason is Reason.DIVERGED
    assert_sound(cache, [elsewhere])


@pytest.mark.parametrize(("shared", "reason"), [(5, Reason.IN_FLIGHT), (4, Reason.COLD)])
def test_of_a_run_that_is_in_flight_in_part_only_that_part_is_waited_for(
    shared: int, reason: Reason
) -> None:
    cache = make_cache(32, SIZE, partial_blocks=True)
    lease = hold(cache, ids(4, 1))
    assert announce_after(cache, lease, ids(8, 1))  # the node grows
    prompt = [*ids(shared, 1), 0, 0, 0, 0]
    assert why(cache, prompt).reason is reason
    cache.commit(lease)
    assert why(cache, prompt).reason is Reason.DIVERGED
    assert why(cache, [*ids(3, 1), 0, 0, 0]) == MatchEnd(Reason.DIVERGED, 3, branch_tokens=8)
    assert_sound(cache, [lease])
