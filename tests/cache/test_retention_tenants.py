"""What one tenant may retain, and what a request that reads a retained prefix does to its time."""

from __future__ import annotations

import pytest

from radix_engine.cache import DEFAULT, Namespace, PrefixCache, RetentionRefused, pack
from tests.cache.requests import Clock, reach, serve
from tests.cache.trees import assert_sound, ids, lease_of, make_cache

SIZE = 4
A, B, SALTED = Namespace(tenant="a"), Namespace(tenant="b"), Namespace(tenant="a", salt="s")


def cache_of(**options: object) -> PrefixCache:
    """All together may retain 16 blocks, a tenant 6."""
    shares = {"most_retained": 0.5, "most_retained_each": 6 / 32}
    return make_cache(32, SIZE, **{**shares, **options})


def refusal(cache: PrefixCache, tokens: list[int], namespace: Namespace) -> RetentionRefused:
    with pytest.raises(RetentionRefused) as refused:
        cache.retain(pack(tokens), None, namespace)
    assert_sound(cache)
    return refused.value


def retain(cache: PrefixCache, tokens: list[int], namespace: Namespace) -> None:
    cache.retain(pack(tokens), None, namespace)
    assert_sound(cache)


def test_a_tenant_cannot_take_what_all_may_retain() -> None:
    cache = cache_of()
    for seed, space in ((1, A), (2, A), (3, B), (4, DEFAULT)):
        serve(cache, ids(20, seed), space)
    retain(cache, ids(20, 1), A)
    refused = refusal(cache, ids(20, 2), A)
    assert refused.reason == "limit"
    assert str(refused) == (
        "retaining 20 tokens goes beyond the limit of 24 for a tenant; release a retention, wait "
        "for one to end, or retain less"
    )
    retain(cache, ids(4, 2), A)
    retain(cache, ids(20, 3), B)
    retain(cache, ids(20, 4), DEFAULT)
    assert cache.retained_blocks == 16


def test_salts_do_not_widen_a_tenants_limit() -> None:
    cache = cache_of()
    serve(cache, ids(20, 1), A)
    serve(cache, ids(20, 2), SALTED)
    retain(cache, ids(20, 1), A)
    assert refusal(cache, ids(20, 2), SALTED).reason == "limit"


def test_a_limit_has_room_again_when_a_retention_ends_or_loses_blocks() -> None:
    cache = cache_of()
    serve(cache, ids(24, 1), A)
    held = cache.retain(pack(ids(24, 1)), None, A)
    serve(cache, ids(12, 2), A)
    refusal(cache, ids(12, 2), A)
    cache.evict(3 + 2)  # the other prompt, and then what is last of the retained one
    assert held.num_tokens == 16
    serve(cache, ids(8, 2), A)
    retain(cache, ids(8, 2), A)
    serve(cache, ids(24, 1), A)
    refusal(cache, ids(24, 1), A)
    cache.release_retention(held)
    assert_sound(cache)
    serve(cache, ids(16, 3), A)
    retain(cache, ids(16, 3), A)


def test_a_refusal_says_the_same_whatever_other_tenants_retain() -> None:
    told = set()
    for of_others in (0, 8, 24):
        cache = cache_of()
        serve(cache, ids(24, 1), B)
        serve(cache, ids(28, 2), A)
        if of_others:
            retain(cache, ids(of_others, 1), B)
        told.add(str(refusal(cache, ids(28, 2), A)))
    assert len(told) == 1


def test_what_is_public_counts_for_no_tenant() -> None:
    cache = cache_of()
    cache.mark_public(pack(ids(20, 1)))
    prompt = [*ids(20, 1), *ids(24, 2)]
    serve(cache, prompt, A)
    retain(cache, prompt, A)
    assert cache.retained_blocks == 5 + 6
    serve(cache, ids(4, 3), A)
    assert refusal(cache, ids(4, 3), A).reason == "limit"
    retain(cache, ids(20, 1), B)


def test_retentions_of_one_tenant_are_as_many_as_its_limit_has_blocks() -> None:
    cache = cache_of()
    serve(cache, ids(4, 1), A)
    serve(cache, ids(4, 1), B)
    held = [cache.retain(pack(ids(4, 1)), None, A) for _ in range(6)]
    assert "there may be 6 retentions of a tenant at most" in str(refusal(cache, ids(4, 1), A))
    retain(cache, ids(4, 1), B)
    cache.release_retention(held[0])
    retain(cache, ids(4, 1), A)
    cache.flush()
    serve(cache, ids(4, 1), A)
    retain(cache, ids(4, 1), A)


def kept_until(cache: PrefixCache, clock: Clock, seconds: float) -> bool:
    clock.now = seconds
    cache.expire()
    assert_sound(cache)
    return cache.retained_blocks > 0


def test_a_request_that_is_served_all_of_it_lets_its_time_begin_anew() -> None:
    clock = Clock()
    cache = cache_of(clock=clock)
    serve(cache, ids(16, 1), A)
    cache.retain(pack(ids(16, 1)), 10.0, A)
    clock.now = 8.0
    serve(cache, ids(20, 1), A)
    assert kept_until(cache, clock, 17.5)
    assert not kept_until(cache, clock, 18.0)


@pytest.mark.parametrize("length", [8, 16])
def test_a_request_that_is_served_less_of_it_does_not(length: int) -> None:
    clock = Clock()
    cache = cache_of(clock=clock)
    serve(cache, ids(16, 1), A)
    cache.retain(pack(ids(16, 1)), 10.0, A)
    clock.now = 8.0
    serve(cache, [*ids(length, 1), *([] if length == 16 else ids(8, 2))], A)  # never its last
    assert not kept_until(cache, clock, 10.0)


def test_a_look_is_no_use_and_another_namespace_changes_nothing() -> None:
    clock = Clock()
    cache = cache_of(clock=clock)
    cache.mark_public(pack(ids(16, 1)))
    serve(cache, ids(20, 1), A)
    cache.retain(pack(ids(16, 1)), 10.0, A)
    clock.now = 8.0
    assert reach(cache, ids(16, 1), A) == 16
    serve(cache, ids(20, 1), B)
    assert not kept_until(cache, clock, 10.0)


def test_a_retention_for_ever_stays_so_when_it_is_read() -> None:
    clock = Clock()
    cache = cache_of(clock=clock)
    serve(cache, ids(16, 1))
    held = cache.retain(pack(ids(16, 1)))
    serve(cache, ids(20, 1))
    assert held.until is None
    assert kept_until(cache, clock, 1e9)


def test_the_retentions_within_one_are_those_that_end_on_its_way() -> None:
    cache = cache_of()
    serve(cache, ids(16, 1))
    serve(cache, [*ids(8, 1), *ids(8, 2)])
    head, other, whole, again = (
        cache.retain(pack(tokens))
        for tokens in (ids(8, 1), [*ids(8, 1), *ids(8, 2)], ids(16, 1), ids(16, 1))
    )
    assert set(cache.retentions.within(whole)) == {head, again}
    assert cache.retentions.within(head) == []
    cache.release(lease_of(cache, ids(17, 1)))
    assert set(cache.retentions.within(other)) == {head}
