from __future__ import annotations

from random import Random

import pytest

from radix_engine.cache import DEFAULT, RULES, Lease, PrefixCache, pack
from tests.cache.naive import NaiveTree
from tests.cache.requests import Clock, begin, reach, serve
from tests.cache.trees import assert_sound, hold, ids, lease_of, make_cache, take

SIZE = 4


def cache_of(rule: str, blocks: int = 64, **options: object) -> PrefixCache:
    return make_cache(blocks, SIZE, eviction=rule, **options)


def hit(cache: PrefixCache, seed: int, times: int = 1, priority: int = 0) -> None:
    """Ask again for what `serve(cache, ids(8, seed))` stored, and a token more."""
    for _ in range(times):
        serve(cache, [*ids(8, seed), 0], priority=priority)


def order(cache: PrefixCache, seeds: list[int]) -> list[int]:
    """In which order runs of 2 blocks leave."""
    left, gone = list(seeds), []
    while left:
        assert cache.evict(2) == 2
        assert_sound(cache)
        leaving = [seed for seed in left if reach(cache, ids(8, seed)) < 8]
        assert len(leaving) == 1, "a run is taken whole before the next one is touched"
        gone += leaving
        left = [seed for seed in left if seed not in leaving]
    return gone


def test_an_unknown_rule_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match="one of lru, lfu, slru, fifo, priority, agent, not 'mru'"):
        cache_of("mru")


@pytest.mark.parametrize("rule", list(RULES))
def test_without_hits_or_priorities_every_rule_takes_the_first_stored_first(rule: str) -> None:
    cache = cache_of(rule)
    for seed in (3, 1, 2):
        serve(cache, ids(8, seed))
    assert order(cache, [1, 2, 3]) == [3, 1, 2]


def test_lru_takes_what_was_used_longest_ago() -> None:
    cache = cache_of("lru")
    for seed in (1, 2, 3):
        serve(cache, ids(8, seed))
    hit(cache, 1, 5)
    hit(cache, 2)
    assert order(cache, [1, 2, 3]) == [3, 1, 2]


def test_lfu_takes_what_served_the_fewest_requests_and_of_equals_the_oldest() -> None:
    cache = cache_of("lfu")
    for seed in (1, 2, 3, 4):
        serve(cache, ids(8, seed))
    hit(cache, 1, 3)
    hit(cache, 4)
    hit(cache, 2)
    assert order(cache, [1, 2, 3, 4]) == [3, 4, 2, 1]


def test_fifo_takes_what_was_stored_first_however_often_it_was_used() -> None:
    cache = cache_of("fifo")
    for seed in (1, 2, 3):
        serve(cache, ids(8, seed))
    hit(cache, 1, 3)
    hit(cache, 2)
    assert order(cache, [1, 2, 3]) == [1, 2, 3]


def test_priority_takes_the_lowest_first_and_of_equals_the_oldest() -> None:
    cache = cache_of("priority")
    for seed, priority in ((1, 2), (2, 0), (3, 1), (4, 1)):
        serve(cache, ids(8, seed), priority=priority)
    hit(cache, 3)
    assert order(cache, [1, 2, 3, 4]) == [2, 4, 3, 1]


def test_a_path_has_the_highest_priority_of_all_that_used_it() -> None:
    cache = cache_of("priority")
    for seed in (1, 2, 3):
        serve(cache, ids(8, seed), priority=1)
    hit(cache, 1, priority=5)
    hit(cache, 1, priority=0)
    hit(cache, 2, priority=3)
    assert order(cache, [1, 2, 3]) == [3, 2, 1]


def test_a_common_head_has_the_priority_of_its_most_important_branch() -> None:
    cache = cache_of("priority")
    head = ids(8, 1)
    serve(cache, [*head, *ids(8, 2)], priority=5)
    serve(cache, [*head, *ids(8, 3)], priority=0)
    serve(cache, ids(8, 4), priority=2)
    cache.evict(2)  # the unimportant branch
    cache.evict(2)  # the run beside it
    assert reach(cache, ids(8, 4)) == 0
    assert reach(cache, [*head, *ids(8, 2)]) == 16
    cache.evict(2)
    serve(cache, ids(8, 4), priority=2)
    cache.evict(2)
    assert (reach(cache, head), reach(cache, ids(8, 4))) == (8, 0)


@pytest.mark.parametrize("rule", ["lfu", "slru", "fifo", "priority"])
def test_a_run_that_was_evicted_and_stored_again_is_a_new_one(rule: str) -> None:
    cache = cache_of(rule)
    for seed in (1, 2, 3):
        serve(cache, ids(8, seed), priority=3)
        hit(cache, seed, 2)
    cache.evict(2)
    assert reach(cache, ids(8, 1)) == 0
    serve(cache, ids(8, 1), priority=3)
    # Alike but for its age under fifo and priority; without hits under the others.
    expected = [1, 2, 3] if rule in ("lfu", "slru") else [2, 3, 1]
    assert order(cache, [1, 2, 3]) == expected


def test_slru_takes_what_never_served_before_what_did() -> None:
    cache = cache_of("slru")
    for seed in range(1, 8):
        serve(cache, ids(8, seed))
    hit(cache, 2)
    hit(cache, 1)
    assert order(cache, list(range(1, 8))) == [3, 4, 5, 6, 7, 2, 1]


def test_slru_lets_old_favourites_leave_when_they_are_more_than_their_share() -> None:
    cache = cache_of("slru")
    for seed in range(1, 6):
        serve(cache, ids(8, seed))
        hit(cache, seed)
    serve(cache, ids(8, 9))
    cache.evict(2)  # 5 of 6 are protected: more than 0.8 of them
    assert (reach(cache, ids(8, 1)), reach(cache, ids(8, 9))) == (0, 8)
    cache.evict(2)  # 4 of 5: not more
    assert (reach(cache, ids(8, 2)), reach(cache, ids(8, 9))) == (8, 0)


@pytest.mark.parametrize(("rule", "survives"), [("slru", True), ("lru", False)])
def test_a_conversation_of_two_turns_survives_a_sweep_of_four_times_the_pool(
    rule: str, survives: bool
) -> None:
    pool, sweep = 100, 200  # blocks, and prompts of two blocks
    cache = cache_of(rule, pool)
    conversation = ids(20 * SIZE, 1)
    serve(cache, conversation[: 18 * SIZE + 1])
    serve(cache, conversation)
    for n in range(sweep):
        cache.release(begin(cache, [10_000 + n, *ids(2 * SIZE - 1, 3)]))
    assert_sound(cache)
    assert (reach(cache, conversation) >= 0.9 * len(conversation)) == survives
    assert cache.counters.evicted_blocks == 20 + 2 * sweep - pool


# LRU, event for event


@pytest.mark.parametrize("seed", range(8))
def test_lru_takes_block_for_block_what_a_dictionary_of_prefixes_would(seed: int) -> None:
    draw = Random(seed)
    cache = cache_of("lru", 30)
    naive = NaiveTree(SIZE)
    running: list[tuple[Lease, list[int]]] = []
    taken = 0
    for _ in range(200):
        letters = [draw.randrange(3) for _ in range(draw.randrange(1, 6))]
        prompt = [*(letter for letter in letters for _ in range(SIZE)), 9]
        found = naive.matched(prompt, DEFAULT)
        lease = lease_of(cache, prompt)
        naive.pin(found, 1)
        need = len(prompt) // SIZE - lease.num_tokens // SIZE
        while cache.pool.free_blocks < need and naive.evictable():
            victim = naive.entries[naive.ends()[0][3]].block
            before = set(cache.pool.free_list())
            assert cache.evict(1) == 1
            assert set(cache.pool.free_list()) - before == {victim}
            naive.evict(1)
            taken += 1
        if cache.pool.free_blocks >= need and draw.random() < 0.9:
            run = prompt[lease.num_tokens : len(prompt) - 1]
            start = lease.num_tokens // SIZE
            table = cache.publish(lease, pack(run), take(cache, need))
            new = naive.prefixes(prompt[:-1], DEFAULT)[start:]
            assert naive.publish(new, table) == list(table)
        running.append((lease, prompt))
        while running and draw.random() < 0.55:
            lease, prompt = running.pop(draw.randrange(len(running)))
            leased = naive.prefixes(prompt[: lease.num_tokens], DEFAULT)
            cache.release(lease)
            naive.pin(leased, -1)
            if leased:
                naive.use(leased, 0.0)
        assert_sound(cache, [lease for lease, _ in running])
        assert cache.evictable_blocks == naive.evictable()
    assert taken > 50


# What every rule has to keep


@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("seed", range(2))
def test_under_every_rule_all_that_is_evictable_can_be_had_and_no_more(
    rule: str, seed: int
) -> None:
    draw, clock = Random(seed), Clock()
    cache = cache_of(rule, 24, clock=clock, ttl=20.0, ghost_blocks=12)
    leases: list[Lease] = []
    for _ in range(300):
        clock.now += 1.0
        prompt = [draw.randrange(2) for _ in range(SIZE * draw.randrange(1, 6) + 1)]
        kind = draw.random()
        if kind < 0.6 and cache.available_blocks >= 6:
            lease = cache.lease(cache.match(pack(prompt)), draw.randrange(3))
            run = prompt[lease.num_tokens : -1]
            blocks = cache.allocate(len(run) // SIZE)
            if blocks is not None:
                cache.publish(lease, pack(run), blocks)
            leases.append(lease)
        elif kind < 0.7:
            cache.expire()
        elif kind < 0.8:
            expected = min(3, cache.evictable_blocks)
            assert cache.evict(3) == expected
        if leases and draw.random() < 0.7:
            cache.release(leases.pop(draw.randrange(len(leases))))
        assert_sound(cache, leases)
        free = cache.available_blocks
        assert cache.allocate(free + 1) is None
        if draw.random() < 0.05:
            blocks = take(cache, free)
            assert_sound(cache, leases, [blocks])
            cache.free(blocks)
    for lease in leases:
        cache.release(lease)
    cached = cache.pool.tree_blocks
    assert cache.evict(24) == cached
    assert cache.pool.free_blocks == 24
    assert_sound(cache)


@pytest.mark.parametrize("rule", list(RULES))
def test_nothing_in_use_is_taken_under_any_rule(rule: str) -> None:
    cache = cache_of(rule)
    lease = hold(cache, ids(16, 1))
    blocks = list(lease.blocks())
    for seed in range(2, 40):
        cache.release(begin(cache, ids(8, seed)))
    cache.evict(64)
    assert list(lease.blocks()) == blocks
    assert cache.pool.tree_blocks == 4
    assert_sound(cache, [lease])
