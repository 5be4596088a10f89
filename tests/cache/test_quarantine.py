"""A block without exactly one owner is taken out of use, and everything else goes on."""

from __future__ import annotations

from array import array

from radix_engine.cache import PrefixCache, pack
from radix_engine.cache.block_pool import QUARANTINED
from radix_engine.cache.flat import FlatCache
from tests.cache.trees import ids, lease_of, make_cache, store, stored, take


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
    cache.release(lease)
    assert cache.evict(3) == 3
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
