"""The live curve of hit rate against memory, held against caches that really have these sizes."""

from __future__ import annotations

from random import Random

import pytest

from radix_engine.cache import pack
from radix_engine.cache.reason import Reason
from tests.cache.requests import Clock, begin
from tests.cache.trees import assert_sound, make_cache

SIZE = 4
BLOCKS = 64
SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)


def requests(seed: int, count: int) -> list[list[int]]:
    """Prompts over three tokens' worth of blocks, so that they branch everywhere, most of them
    asked before: the k-th latest with a weight of 1 / (k + 1). None is longer than a quarter of the
    memory, and each ends inside a block, so that a request allocates just what it stores."""
    draw = Random(seed)
    seen: list[list[int]] = []
    stream = []
    for _ in range(count):
        if seen and draw.random() < 0.7:
            weights = [1 / (rank + 1) for rank in range(len(seen))]
            (again,) = draw.choices(seen, weights)
            blocks = again[: draw.randrange(1, len(again) + 1)]
        else:
            blocks = []
        while len(blocks) < 14 and draw.random() < 0.75:
            blocks = [*blocks, draw.randrange(3)]
        seen.insert(0, blocks or [0])
        tail = draw.randrange(1, SIZE)
        stream.append([token for block in seen[0] for token in [block] * SIZE] + [7] * tail)
    return stream


def measured(stream: list[list[int]], blocks: int) -> float:
    """The share of prompt tokens that a cache of so many blocks serves."""
    cache = make_cache(blocks, SIZE)
    served = 0
    for prompt in stream:
        served += cache.match(pack(prompt)).num_tokens
        cache.release(begin(cache, prompt))
    assert_sound(cache)
    return served / sum(map(len, stream))


@pytest.mark.parametrize("seed", range(3))
def test_the_curve_is_what_caches_of_these_sizes_serve(seed: int) -> None:
    stream = requests(seed, 1000)
    # Remembering all there is, LRU's order is known to any depth, so equal means equal.
    all_known = make_cache(BLOCKS, SIZE, ghost_blocks=100_000)
    as_usual = make_cache(BLOCKS, SIZE)
    for prompt in stream:
        all_known.release(begin(all_known, prompt))
        as_usual.release(begin(as_usual, prompt))
    expected = {share: measured(stream, int(share * BLOCKS)) for share in SHARES}
    assert len(set(expected.values())) == len(SHARES)  # the sizes do differ
    assert all_known.hit_rate_curve() == expected
    usual = as_usual.hit_rate_curve()
    # Forgetting touches only what lies beyond the memory itself.
    assert {s: usual[s] for s in SHARES if s <= 1} == {s: expected[s] for s in SHARES if s <= 1}
    assert usual == pytest.approx(expected, abs=0.01)


def test_no_size_counts_more_than_is_ever_asked_again() -> None:
    stream = requests(7, 400)
    cache = make_cache(BLOCKS, SIZE)
    for prompt in stream:
        cache.release(begin(cache, prompt))
    rates = list(cache.hit_rate_curve().values())
    assert rates == sorted(rates)
    assert rates[-1] <= measured(stream, 10_000)


def test_a_hit_on_a_ghost_counts_for_the_larger_sizes_alone() -> None:
    cache = make_cache(8, SIZE)
    prompts = [[10 * n] * 16 + [1] for n in range(4)]  # four blocks each, room for two
    for _ in range(2):
        for prompt in prompts:
            cache.release(begin(cache, prompt))
    assert cache.ends == {Reason.COLD: 4, Reason.EVICTED: 4}
    served = 4 * 16 / (8 * 17)
    assert cache.hit_rate_curve() == {0.25: 0.0, 0.5: 0.0, 1.0: 0.0, 2.0: served, 4.0: served}


def test_what_expired_would_be_gone_at_any_size() -> None:
    clock = Clock()
    cache = make_cache(16, SIZE, clock=clock, ttl=10.0)
    cache.release(begin(cache, [1] * 16 + [2]))
    clock.now = 11.0
    assert cache.expire() == 4
    cache.release(begin(cache, [1] * 16 + [2]))
    assert set(cache.hit_rate_curve().values()) == {0.0}
    cache.release(begin(cache, [1] * 16 + [2]))
    assert set(cache.hit_rate_curve().values()) == {16 / 51}


def test_what_a_flush_took_would_be_gone_at_any_size() -> None:
    cache = make_cache(16, SIZE)
    cache.release(begin(cache, [1] * 16 + [2]))
    cache.flush()
    cache.release(begin(cache, [1] * 16 + [2]))
    assert set(cache.hit_rate_curve().values()) == {0.0}


def test_a_curve_without_requests_is_zero() -> None:
    assert make_cache(16, SIZE).hit_rate_curve() == dict.fromkeys(SHARES, 0.0)


@pytest.mark.parametrize("how", ["evicted", "expired", "evicted in part, then expired"])
def test_what_expired_is_forgotten_once_and_not_again_when_its_ghost_goes(how: str) -> None:
    clock = Clock()
    cache = make_cache(8, SIZE, clock=clock, ttl=10.0, ghost_blocks=4, most_retained=1.0)
    head = [1] * 8
    cache.release(begin(cache, [*head, *[2] * 8, 3]))
    cache.retain(pack(head))  # carries the same tick as what follows it
    if how != "expired":
        assert cache.evict(2 if how == "evicted" else 1) > 0
    if how != "evicted":
        clock.now = 20.0
        assert cache.expire() > 0
    for other in range(6):  # push that ghost out of the budget
        cache.release(begin(cache, [50 + other] * 8 + [1]))
    assert cache.match(pack([*head, 2])).num_tokens == 8
    assert cache._tree.curve._length.get(1) == 2  # the head's blocks, of the first request's tick
    before = cache.hit_rate_curve()
    asked = 17 + 6 * 9
    assert set(before.values()) == {0.0}
    cache.release(begin(cache, [*head, 9]))
    served = 8 / (asked + 9)
    expected = {0.25: 0.0, 0.5: 0.0, 1.0: 0.0, 2.0: served, 4.0: served}
    assert cache.hit_rate_curve() == expected
