from __future__ import annotations

import logging

import pytest

from tests.cache.trees import (
    assert_sound,
    edges,
    hold,
    ids,
    lease_nothing,
    lease_of,
    make_cache,
    publish,
    store,
    stored,
)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_nothing_of_a_leased_path_is_evicted_its_end_included(size: int) -> None:
    cache = make_cache(64, size)
    upper, both = ids(2 * size, 1), [*ids(2 * size, 1), *ids(2 * size, 2)]
    store(cache, upper)
    store(cache, both)
    lease = lease_of(cache, [*both, 0])
    assert lease.num_tokens == 4 * size
    assert cache.evict(64) == 0
    assert stored(cache, both) == 4 * size
    assert_sound(cache, [lease])
    cache.release(lease)
    assert cache.evict(64) == 4
    assert edges(cache) == []
    assert_sound(cache)


def test_what_hangs_below_a_leased_path_can_be_evicted() -> None:
    cache = make_cache(8, 4)
    store(cache, ids(16, 1))
    lease = lease_of(cache, ids(9, 1))
    assert cache.evict(8) == 2
    assert stored(cache, ids(16, 1)) == 8
    assert_sound(cache, [lease])


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_node_that_is_split_under_a_lease_stays_pinned_in_both_halves(at: int) -> None:
    cache = make_cache(32, 4)
    first = hold(cache, ids(16, 1))
    blocks = list(first.blocks())
    other = [*ids(4 * at, 1), *ids(8, 2)]
    second = hold(cache, other)
    assert list(first.blocks()) == blocks
    assert list(second.blocks()[:at]) == blocks[:at]
    assert_sound(cache, [first, second])
    cache.release(second)
    assert cache.evict(32) == 2
    assert stored(cache, ids(16, 1)) == 16
    assert_sound(cache, [first])
    cache.release(first)
    again = lease_of(cache, ids(17, 1))
    assert list(again.blocks()) == blocks
    assert_sound(cache, [again])
    cache.release(again)
    assert cache.evict(32) == 4
    assert_sound(cache)


def test_a_lease_that_ends_inside_a_node_pins_only_what_it_covers() -> None:
    cache = make_cache(32, 4)
    whole = store(cache, ids(16, 1))
    for length in (5, 9, 13):
        lease = lease_of(cache, ids(length, 1))
        assert lease.num_tokens == length - 1
        assert list(lease.blocks()) == list(whole[: length // 4])
        assert cache.evictable_blocks == 4 - length // 4
        assert_sound(cache, [lease])
        cache.release(lease)
    assert stored(cache, ids(16, 1)) == 16


def test_many_leases_of_one_path_end_in_any_order() -> None:
    cache = make_cache(32, 4)
    store(cache, ids(16, 1))
    leases = [lease_of(cache, ids(length, 1)) for length in (17, 9, 17, 5, 13, 9)]
    assert_sound(cache, leases)
    for index in (3, 0, 2, 0, 1, 0):
        cache.release(leases.pop(index))
        assert_sound(cache, leases)
    assert cache.evictable_blocks == 4


def test_a_second_release_changes_nothing_and_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = make_cache(8, 4)
    mine = hold(cache, ids(8, 1))
    other = lease_of(cache, ids(9, 1))
    cache.release(mine)
    assert cache.counters.repeated_releases == 0
    with caplog.at_level(logging.WARNING):
        for repeat in (1, 2):
            cache.release(mine)
            assert cache.counters.repeated_releases == repeat
            assert cache.evictable_blocks == 0, "the other lease still pins the path"
            assert_sound(cache, [other])
    assert len(caplog.records) == 2
    assert "released twice" in caplog.text


def test_a_lease_of_nothing_pins_nothing_and_can_publish() -> None:
    cache = make_cache(8, 4)
    store(cache, ids(8, 1))
    lease = lease_nothing(cache)
    assert lease.num_tokens == 0
    assert len(lease.blocks()) == 0
    assert cache.evictable_blocks == 2
    publish(cache, lease, ids(4, 2))
    assert_sound(cache, [lease])
    cache.release(lease)
    assert stored(cache, ids(4, 2)) == 4
    assert_sound(cache)


def test_a_conversation_that_grows_turn_by_turn_finds_all_full_blocks_of_the_turn_before() -> None:
    cache = make_cache(300, 16)
    history, computed = ids(20, 1), 0
    for turn in range(1, 12):
        lease = lease_of(cache, history)
        assert lease.num_tokens == computed // 16 * 16
        before = [*history, *ids(23, turn)]
        computed = len(before) - 1  # the last token of an answer never is
        publish(cache, lease, before[:computed])
        assert_sound(cache, [lease])
        cache.release(lease)
        history = [*before, *ids(9, 100 + turn)]  # and what the user or a tool says next
