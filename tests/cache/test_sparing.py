"""What waiting requests would hit is evicted after all else that nobody retains."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from radix_engine.cache import RULES, PrefixCache, pack
from radix_engine.cache.eviction import LruLeaves
from radix_engine.cache.flat import FlatCache
from radix_engine.cache.node import Node
from tests.cache.flat.use import store as store_flat
from tests.cache.requests import Clock, begin, reach, serve
from tests.cache.steps import announce_after
from tests.cache.trees import assert_sound, ids, lease_of, make_cache

SIZE = 4


def spare(cache: PrefixCache, prompts: Iterable[list[int]]) -> None:
    cache.spare([cache.match(pack([*tokens, 0])) for tokens in prompts])


def left(cache: PrefixCache, seeds: Iterable[int], length: int = 8) -> list[int]:
    """How many tokens are left of each run."""
    return [reach(cache, ids(length, seed)) for seed in seeds]


def stocked(rule: str = "lru", **options: object) -> PrefixCache:
    """Runs of 2 blocks, seeds 1 to 4, stored in this order."""
    cache = make_cache(64, SIZE, eviction=rule, **options)
    for seed in (1, 2, 3, 4):
        serve(cache, ids(8, seed))
    return cache


@pytest.mark.parametrize("rule", list(RULES))
def test_under_every_rule_what_is_spared_goes_after_the_rest(rule: str) -> None:
    cache = stocked(rule)
    spare(cache, [ids(8, 2), ids(8, 1)])
    assert_sound(cache)
    assert cache.evict(4) == 4
    assert left(cache, (1, 2, 3, 4)) == [8, 8, 0, 0]
    assert cache.evict(3) == 3  # of the spared the one idle for longest, from its tail
    assert left(cache, (1, 2, 3, 4)) == [0, 4, 0, 0]
    assert_sound(cache)


@pytest.mark.parametrize("rule", list(RULES))
def test_the_next_call_spares_only_what_it_names(rule: str) -> None:
    cache = stocked(rule)
    spare(cache, [ids(8, 1), ids(8, 2)])
    spare(cache, [ids(8, 2), ids(8, 3)])
    cache.evict(4)
    assert left(cache, (1, 2, 3, 4)) == [0, 8, 8, 0]
    spare(cache, [])
    assert not cache._tree.leaves.spared
    serve(cache, ids(8, 5))
    cache.evict(2)
    assert left(cache, (2, 3, 5)) == [0, 8, 8]
    assert_sound(cache)


@pytest.mark.parametrize("rule", list(RULES))
def test_what_is_retained_goes_after_what_is_spared(rule: str) -> None:
    cache = stocked(rule, most_retained=1.0)
    cache.retain(pack(ids(8, 1)))
    spare(cache, [ids(8, 1), ids(8, 2)])
    assert_sound(cache)
    cache.evict(6)
    assert left(cache, (1, 2, 3, 4)) == [8, 0, 0, 0]
    assert_sound(cache)


def test_a_run_is_spared_again_when_its_retention_ends() -> None:
    cache = stocked(most_retained=1.0)
    retention = cache.retain(pack(ids(8, 1)))
    spare(cache, [ids(8, 1)])
    cache.release_retention(retention)
    cache.evict(6)
    assert left(cache, (1, 2, 3, 4)) == [8, 0, 0, 0]
    assert_sound(cache)


def test_what_is_leased_meanwhile_is_still_spared_when_the_lease_ends() -> None:
    cache = stocked()
    spare(cache, [ids(8, 1)])
    lease = begin(cache, ids(8, 1))
    assert_sound(cache, [lease])
    cache.release(lease)
    serve(cache, ids(8, 5))
    cache.evict(8)
    assert left(cache, (1, 2, 3, 4, 5)) == [8, 0, 0, 0, 0]


@pytest.mark.parametrize("at", [4, 8])
def test_both_parts_of_a_spared_run_that_is_split_are_spared(at: int) -> None:
    cache = make_cache(64, SIZE)
    for seed in (1, 2):
        serve(cache, ids(12, seed))
    spare(cache, [ids(12, 1)])
    serve(cache, [*ids(at, 1), 0])  # its lease ends inside
    assert_sound(cache)
    serve(cache, ids(12, 3))
    cache.evict(6)
    assert left(cache, (1, 2, 3), 12) == [12, 0, 0]
    serve(cache, ids(12, 4))
    cache.evict((12 - at) // SIZE + 3)  # what is new, then the lower part
    assert left(cache, (1, 4), 12) == [at, 0]
    serve(cache, ids(12, 5))
    cache.evict(3)
    assert left(cache, (1, 5), 12) == [at, 0]
    assert_sound(cache)


def test_what_was_left_of_a_spared_run_is_spared_when_a_lease_ends_where_it_does() -> None:
    cache = make_cache(64, SIZE)
    serve(cache, ids(8, 1))
    spare(cache, [ids(8, 1)])
    cache.evict(1)
    serve(cache, ids(8, 1)[:7])  # splits where blocks end and ghosts begin
    serve(cache, ids(8, 2))
    cache.evict(2)
    assert left(cache, (1, 2)) == [4, 0]
    assert_sound(cache)


def test_the_head_of_a_spared_run_is_spared_when_the_run_has_gone() -> None:
    cache = make_cache(64, SIZE)
    for seed in (1, 2):
        serve(cache, [*ids(8, 9), *ids(8, seed)])
    spare(cache, [[*ids(8, 9), *ids(8, 1)]])
    assert cache.evict(4) == 4  # the other branch, then the spared one
    serve(cache, ids(8, 3))
    cache.evict(2)
    assert left(cache, (9, 3)) == [8, 0]
    assert_sound(cache)


def test_a_head_whose_match_ends_where_others_go_on_is_spared_when_they_have_gone() -> None:
    cache = make_cache(64, SIZE)
    for seed in (1, 2):
        serve(cache, [*ids(8, 9), *ids(8, seed)])
    serve(cache, ids(8, 3))
    spare(cache, [ids(8, 9)])
    cache.evict(6)
    assert left(cache, (9, 3)) == [8, 0]
    assert_sound(cache)


def test_what_was_evicted_and_is_stored_again_is_spared_no_longer() -> None:
    cache = make_cache(64, SIZE)
    for seed in (1, 2):
        serve(cache, ids(8, seed))
    spare(cache, [ids(8, 1)])
    cache.evict(4)
    serve(cache, ids(8, 1))
    serve(cache, ids(8, 2))
    cache.evict(2)
    assert left(cache, (1, 2)) == [0, 8]


def test_a_flush_ends_sparing() -> None:
    cache = stocked()
    lease = begin(cache, ids(8, 1))
    spare(cache, [ids(8, 1), ids(8, 2)])
    cache.flush()
    assert not cache._tree.leaves.spared
    assert_sound(cache, [lease])
    cache.release(lease)
    assert_sound(cache)


def test_a_match_from_before_a_change_spares_nothing() -> None:
    cache = stocked()
    stale = cache.match(pack(ids(9, 1)))
    serve(cache, ids(8, 5))
    cache.spare([stale])
    cache.evict(2)
    assert left(cache, (1, 2)) == [0, 8]


def test_a_match_of_nothing_and_one_in_flight_spare_no_more_than_what_is_computed() -> None:
    cache = stocked()
    lease, other = (lease_of(cache, ids(9, 1)) for _ in range(2))
    assert announce_after(cache, lease, [*ids(8, 1), *ids(4, 6)])  # a node of its own
    spare(cache, [ids(8, 7), [*ids(8, 1), *ids(4, 6)]])
    assert [node.num_tokens for node in cache._tree.leaves.spared] == [8]
    cache.release(lease)
    cache.release(other)
    cache.evict(6)
    assert left(cache, (1, 2, 3, 4)) == [8, 0, 0, 0]
    assert_sound(cache)


@pytest.mark.parametrize("rule", list(RULES))
def test_what_is_spared_expires_like_the_rest_the_longest_idle_first(rule: str) -> None:
    clock = Clock()
    cache = PrefixCache(64, SIZE, clock, ttl=10.0, eviction=rule, partial_blocks=False)
    for seed in (1, 2, 3):
        serve(cache, ids(8, seed))
        clock.now += 4.0
    spare(cache, [ids(8, 1), ids(8, 3)])
    assert cache.expire() == 2
    assert left(cache, (1, 2, 3)) == [0, 8, 8]
    clock.now += 5.0
    assert cache.expire() == 2
    assert left(cache, (1, 2, 3)) == [0, 0, 8]
    assert_sound(cache)


def test_sparing_the_same_again_moves_nothing() -> None:
    class Counting(LruLeaves):
        moves = 0

        def discard(self, leaf: Node) -> None:
            self.moves += 1
            super().discard(leaf)

    rule = Counting()
    cache = PrefixCache(64, SIZE, eviction=rule, partial_blocks=False)
    for seed in (1, 2):
        serve(cache, ids(8, seed))
    rule.moves = 0
    for _ in range(3):
        spare(cache, [ids(8, 1), ids(8, 1)])
    assert rule.moves == 1


def test_the_flat_index_evicts_as_ever() -> None:
    cache = FlatCache(8, SIZE)
    for seed in (1, 2):
        store_flat(cache, ids(8, seed))
    cache.spare([cache.match(pack(ids(9, 1)))])
    cache.evict(1)
    assert cache.match(pack(ids(9, 1))).num_tokens == 4
