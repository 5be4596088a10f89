"""A block without exactly one owner is taken out of use, and everything else goes on."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from radix_engine.cache import Cause, MatchEnd, Namespace, PrefixCache, Reason, pack
from radix_engine.cache.block_pool import QUARANTINED
from radix_engine.cache.flat import FlatCache
from radix_engine.cache.token_run import token_array
from tests.cache.flat.use import hold as hold_flat
from tests.cache.flat.use import store as store_flat
from tests.cache.requests import serve, why
from tests.cache.steps import announce, announce_after
from tests.cache.trees import hold, ids, lease_nothing, lease_of, make_cache, store, stored, take


def test_a_cache_in_order_has_nothing_to_quarantine() -> None:
    cache = make_cache(8, 4)
    store(cache, ids(8, 1))
    private = take(cache, 1)
    assert cache.quarantine([private]) == []
    assert cache.pool.quarantined_blocks == 0


def test_a_lost_block_is_never_handed_out_again() -> None:
    cache = make_cache(8, 4)
    lost = take(cache, 1)[0]
    assert cache.quarantine([]) == [f"block {lost} has 0 owners"]
    assert cache.pool.owner_of(lost) == QUARANTINED
    blocks = take(cache, 7)
    assert lost not in blocks
    assert cache.allocate(1) is None
    assert cache.audit([blocks], []) == []
    assert cache.pool.sum_problem() is None


def test_a_block_that_is_free_and_in_the_tree_is_read_on_and_not_handed_out() -> None:
    cache = make_cache(4, 4)
    blocks = store(cache, ids(12, 1))
    lease = lease_of(cache, ids(13, 1))
    cache.pool.free_from_tree(blocks[1:2])  # the fault
    assert cache.quarantine([])
    assert list(lease.blocks()) == list(blocks)
    assert take(cache, 1)[0] not in blocks
    assert stored(cache, ids(12, 1)) == 4
    cache.release(lease)
    assert cache.pool.free_blocks == 1  # the last block went with the one before it
    assert cache.evict(3) == 1
    assert cache.pool.free_blocks == 2
    assert cache.pool.sum_problem() is None
    assert stored(cache, ids(12, 1)) == 0


def test_a_private_block_in_quarantine_can_still_be_given_back() -> None:
    for cache in (PrefixCache(4, 4), FlatCache(4, 4)):
        held = cache.allocate(2)
        assert held is not None
        assert cache.quarantine([held[:1], array("i", [held[0]]), held[1:]]) != []
        cache.free(held)
        assert cache.pool.free_blocks == 3
        assert cache.match(pack(ids(9, 1))).num_tokens == 0


def put_in_quarantine(cache: PrefixCache, block: int, private: Sequence[array[int]] = ()) -> None:
    """A block that two call their own, one of them wrongly."""
    wrong = token_array([block])
    found = cache.quarantine([*private, wrong])
    assert any(line.startswith(f"block {block} ") for line in found)
    assert cache.pool.quarantined == {block}


def is_sound(cache: PrefixCache, private: Sequence[array[int]] = ()) -> bool:
    problems = cache.audit(private)
    return problems == [] and cache.pool.sum_problem() is None


@pytest.mark.parametrize("bad", range(4))
def test_what_cannot_be_had_is_neither_evictable_nor_available(bad: int) -> None:
    cache = make_cache(6, 4, most_retained=1.0, events=True)
    blocks = store(cache, ids(16, 1))
    cache.retain(pack(ids(16, 1)))
    put_in_quarantine(cache, blocks[bad])
    assert is_sound(cache)
    assert (cache.evictable_blocks, cache.available_blocks) == (bad, 5)
    assert stored(cache, ids(16, 1)) == 4 * bad
    version, counters = cache.version, cache.counters.evicted_blocks
    assert cache.allocate(6) is None
    assert (cache.version, cache.counters.evicted_blocks) == (version, counters)
    assert stored(cache, ids(16, 1)) == 4 * bad
    private = take(cache, 5)
    assert blocks[bad] not in private
    cache.free(private)
    assert is_sound(cache)


def test_what_a_fault_took_is_told_as_its_cause() -> None:
    cache = make_cache(8, 4)
    blocks = store(cache, ids(16, 1))
    put_in_quarantine(cache, blocks[1])
    end = why(cache, ids(17, 1))
    assert end == MatchEnd(Reason.EVICTED, 4, Cause.FAULT, lost_tokens=12)


def test_branches_behind_a_block_in_quarantine_go_with_it_and_others_stay() -> None:
    cache = make_cache(16, 4)
    head = store(cache, ids(8, 1))
    for seed in (2, 3):
        store(cache, [*ids(8, 1), *ids(4, seed)])
    store(cache, [*ids(4, 1), *ids(4, 4)])
    store(cache, ids(8, 5))
    put_in_quarantine(cache, head[1])
    assert is_sound(cache)
    assert stored(cache, [*ids(8, 1), *ids(4, 2)]) == 4
    assert stored(cache, [*ids(4, 1), *ids(4, 4)]) == 8
    assert stored(cache, ids(8, 5)) == 8
    assert cache.available_blocks == 15


def test_nobody_new_is_served_a_block_in_quarantine_and_it_leaves_with_its_last_reader() -> None:
    cache = make_cache(16, 4, partial_blocks=True)
    first = hold(cache, ids(12, 1))
    second = lease_of(cache, ids(13, 1))
    blocks = first.blocks()
    put_in_quarantine(cache, blocks[1])
    for prompt in (ids(13, 1), ids(7, 1), [*ids(7, 1), 0, 0]):
        assert cache.match(pack(prompt)).num_tokens == 4
    late = lease_of(cache, ids(13, 1))
    own = take(cache, 2)
    assert list(cache.publish(late, pack(ids(12, 1)[4:]), own)) == []
    assert late.num_tokens == 4
    assert not cache.announce(late, pack(ids(12, 1)[4:]), own)
    assert second.blocks() == blocks
    for lease in (first, second):
        assert cache.pool.tree_blocks == 2
        cache.release(lease)
    assert is_sound(cache, [own])
    assert cache.pool.tree_blocks == 1
    assert list(cache.publish(late, pack(ids(12, 1)[4:]), own)) == list(own)
    assert stored(cache, ids(12, 1)) == 12
    cache.release(late)
    assert is_sound(cache)
    assert cache.available_blocks == 15


def test_rows_of_a_block_in_quarantine_are_not_copied() -> None:
    cache = make_cache(16, 4, partial_blocks=True)
    store(cache, ids(4, 1))
    lease = hold(cache, ids(8, 1))
    put_in_quarantine(cache, lease.blocks()[1])
    assert cache.match(pack([*ids(6, 1), 0, 0])).num_tokens == 4


def test_a_private_block_in_quarantine_ends_what_is_published_and_nothing_else() -> None:
    caches: list[Any] = [make_cache(8, 4), FlatCache(8, 4)]
    for cache in caches:
        lease = cache.lease(cache.match(pack(ids(17, 1))))
        private = cache.allocate(4)
        assert private is not None
        cache.quarantine([private, private[1:2]])
        assert cache.pool.quarantined == {private[1]}
        for _ in range(2):
            table = cache.publish(lease, pack(ids(16, 1)[lease.num_tokens :]), private)
            private = private[len(table) :]
            assert lease.num_tokens == 4
        assert len(private) == 3
        assert not cache.announce(lease, pack(ids(16, 1)[4:]), private)
        cache.free(private)
        cache.release(lease)
        assert cache.audit([]) == []
        assert (cache.pool.free_blocks, cache.evictable_blocks) == (6, 1)
        assert cache.match(pack(ids(17, 1))).num_tokens == 4


@pytest.mark.parametrize("bad", range(3))
def test_a_step_with_a_block_in_quarantine_is_committed(bad: int) -> None:
    cache = make_cache(16, 4)
    owner = announce(cache, ids(12, 1))
    other = lease_of(cache, [*ids(12, 1), *ids(5, 2)])
    assert announce_after(cache, other, [*ids(12, 1), *ids(4, 2)])
    third = announce(cache, ids(8, 3))
    put_in_quarantine(cache, owner.blocks()[bad])
    for lease in (owner, other, third):
        cache.commit(lease)
    assert cache.pool.in_flight_blocks == 0
    assert stored(cache, ids(12, 1)) == 4 * bad
    assert stored(cache, ids(8, 3)) == 8
    late = lease_nothing(cache)
    assert len(cache.publish(late, pack(ids(12, 1)), take(cache, 3))) == bad
    for lease in (owner, third, other, late):
        cache.release(lease)
    assert cache.pool.tree_blocks == bad + 2
    assert cache.evictable_blocks == bad + 2


@pytest.mark.parametrize("bad", range(3))
def test_a_step_with_a_block_in_quarantine_can_be_withdrawn(bad: int) -> None:
    cache = make_cache(16, 4)
    owner, other = announce(cache, ids(12, 1)), lease_of(cache, ids(13, 1))
    put_in_quarantine(cache, owner.blocks()[bad])
    cache.release(owner)
    assert cache.is_broken(other)
    cache.release(other)
    assert is_sound(cache)
    assert cache.pool.free_blocks == 15


def test_a_flushed_run_with_a_block_in_quarantine_is_given_back_without_it() -> None:
    cache = make_cache(8, 4)
    lease = hold(cache, ids(8, 1))
    put_in_quarantine(cache, lease.blocks()[0])
    cache.flush()
    cache.release(lease)
    assert is_sound(cache)
    assert cache.pool.free_blocks == 7


def test_a_continuation_of_a_public_path_in_quarantine_goes_with_it() -> None:
    cache = make_cache(16, 4)
    tenant = Namespace(tenant="a")
    cache.mark_public(pack(ids(8, 1)))
    serve(cache, [*ids(8, 1), *ids(4, 2)], tenant)
    public = lease_of(cache, ids(9, 1))
    bad = public.blocks()[1]
    cache.release(public)
    put_in_quarantine(cache, bad)
    assert is_sound(cache)
    assert cache.match(pack([*ids(8, 1), *ids(5, 2)]), tenant).num_tokens == 4
    assert cache.available_blocks == 15


def test_the_flat_index_takes_a_block_in_quarantine_out_of_its_queue() -> None:
    cache = FlatCache(4, 4)
    lease = store_flat(cache, ids(12, 1))
    assert cache.quarantine([array("i", [lease[1]])])
    assert (cache.evictable_blocks, cache.available_blocks) == (2, 3)
    assert cache.match(pack(ids(13, 1))).num_tokens == 4
    assert cache.allocate(4) is None
    assert cache.evictable_blocks == 2
    private = cache.allocate(3)
    assert private is not None
    assert cache.audit([private]) == []


def test_the_flat_index_keeps_a_pinned_block_in_quarantine_from_all_others() -> None:
    cache = FlatCache(4, 4)
    lease = hold_flat(cache, ids(12, 1))
    assert cache.quarantine([array("i", [lease.held[1]])])
    assert cache.match(pack(ids(13, 1))).num_tokens == 4
    cache.release(lease)
    assert cache.audit([], []) == []
    assert cache.available_blocks == 3
