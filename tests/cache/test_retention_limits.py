"""How many retentions there may be, what a refusal says, and what is left of one that ended."""

from __future__ import annotations

import pytest

from radix_engine.cache import Namespace, PrefixCache, RetentionRefused, pack
from tests.cache.requests import Clock, serve
from tests.cache.trees import assert_sound, ids, make_cache

SIZE = 4
A, B = Namespace(tenant="a"), Namespace(tenant="b")


def refusal(cache: PrefixCache, tokens: list[int], namespace: Namespace) -> str:
    with pytest.raises(RetentionRefused) as refused:
        cache.retain(pack(tokens), None, namespace)
    return str(refused.value)


def nodes(cache: PrefixCache) -> int:
    total, todo = 0, [cache.root]
    while todo:
        node = todo.pop()
        total += 1
        todo.extend(node.children.values())
    return total


def test_a_refusal_says_the_same_whatever_another_tenant_retains() -> None:
    told = set()
    for of_others in (8, 12, 16):  # 16 of 16 tokens, at most
        cache = make_cache(16, SIZE, most_retained_each=0.25)
        serve(cache, ids(16, 1), A)
        serve(cache, ids(12, 2), B)
        cache.retain(pack(ids(of_others, 1)), None, A)
        told.add(refusal(cache, ids(12, 2), B))
    assert len(told) == 1
    assert told.pop().startswith("retaining 12 tokens goes beyond what the limit of 16 leaves;")


def test_retentions_of_one_prefix_are_as_many_as_the_limit_has_blocks() -> None:
    clock = Clock()
    cache = PrefixCache(32, SIZE, clock, partial_blocks=False)  # 8 blocks
    serve(cache, ids(8, 1))
    held = [cache.retain(pack(ids(8, 1)), 10.0) for _ in range(8)]
    assert len(cache.retentions) == 8
    assert "at most" in refusal(cache, ids(8, 1), Namespace())
    cache.release_retention(held[0])
    cache.release_retention(held[0])
    held.append(cache.retain(pack(ids(8, 1))))
    assert "at most" in refusal(cache, ids(8, 1), Namespace())
    clock.now = 11.0
    cache.expire()
    assert len(cache.retentions) == 1
    cache.evict(2)
    assert held[-1].lost
    assert len(cache.retentions) == 0
    assert_sound(cache)
    serve(cache, ids(8, 1))
    cache.retain(pack(ids(8, 1)))
    cache.flush()
    assert len(cache.retentions) == 0


def test_one_call_ends_a_bounded_number_and_the_next_ones_the_rest() -> None:
    clock = Clock()
    cache = PrefixCache(400, SIZE, clock, partial_blocks=False)
    serve(cache, ids(8, 1))
    for _ in range(100):
        cache.retain(pack(ids(8, 1)), 10.0)
    clock.now = 11.0
    for left in (36, 0):
        cache.expire()
        assert len(cache.retentions) == left
    assert cache.retained_blocks == 0
    assert_sound(cache)


def test_a_retention_says_how_much_it_still_keeps() -> None:
    cache = make_cache(20, SIZE, most_retained=1.0)
    serve(cache, ids(40, 1))
    serve(cache, [*ids(8, 1), *ids(4, 2)])  # splits what will be retained
    retention = cache.retain(pack(ids(48, 1)))
    assert retention.num_tokens == 40
    for evicted, tokens in ((3, 32), (4, 16), (2, 8), (2, 0)):  # the other branch goes first
        cache.evict(evicted)
        assert retention.num_tokens == tokens
    assert retention.lost
    assert_sound(cache)


def test_a_retention_that_was_released_or_flushed_keeps_nothing() -> None:
    cache = make_cache(20, SIZE, most_retained=1.0)
    serve(cache, ids(8, 1))
    first, second = (cache.retain(pack(ids(8, 1))) for _ in range(2))
    cache.release_retention(first)
    assert (first.num_tokens, second.num_tokens) == (0, 8)
    cache.flush()
    assert second.num_tokens == 0


@pytest.mark.parametrize("how", ["lost", "released", "flushed", "expired"])
def test_a_refresh_of_one_that_has_ended_changes_nothing(how: str) -> None:
    clock = Clock()
    cache = PrefixCache(20, SIZE, clock, partial_blocks=False)
    serve(cache, ids(8, 1))
    retention = cache.retain(pack(ids(8, 1)), 5.0)
    if how == "lost":
        cache.evict(2)
    elif how == "released":
        cache.release_retention(retention)
    elif how == "flushed":
        cache.flush()
    else:
        clock.now = 6.0
        cache.expire()
    cache.refresh_retention(retention, 100.0)
    assert retention.until == 5.0
    clock.now = 200.0
    assert cache.retentions.expire(clock.now) == 0
    assert len(cache.retentions) == 0
    assert_sound(cache)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_refused_time_or_size_changes_nothing(seconds: float) -> None:
    cache = make_cache(20, SIZE)
    serve(cache, ids(40, 1))
    before = cache.version, nodes(cache), cache.retained_blocks
    for length, time in ((8, seconds), (24, None), (24, seconds)):  # 20 tokens at most
        with pytest.raises(RetentionRefused):
            cache.retain(pack(ids(length, 1)), time)
    assert (cache.version, nodes(cache), cache.retained_blocks) == before
    assert_sound(cache)
