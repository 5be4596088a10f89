"""Why a match ended, where another namespace stores what comes next."""

from __future__ import annotations

import pytest

from radix_engine.cache import (
    MatchEnd,
    Namespace,
    PrefixCache,
    Reason,
    pack,
)
from tests.cache.requests import begin, serve, why
from tests.cache.trees import assert_sound, ids, make_cache, take

A, A_SALTED, B = Namespace(tenant="a"), Namespace(tenant="a", salt="s"), Namespace(tenant="b")
SIZE = 4


def cache_of(*prompts: list[int], partial: bool = False, **options: object) -> PrefixCache:
    cache = make_cache(64, SIZE, partial_blocks=partial, **options)
    for prompt in prompts:
        serve(cache, prompt)
    return cache


def test_what_a_tenant_stores_elsewhere_is_told_to_that_tenant_alone() -> None:
    cache = make_cache(64, SIZE)
    serve(cache, ids(8, 1), A)
    for space in (A_SALTED, Namespace(tenant="a", adapter="l"), Namespace(tenant="a", weights=1)):
        assert why(cache, ids(9, 1), space) == MatchEnd(Reason.NAMESPACE, 0)
    for space in (B, Namespace(tenant="b", salt="s"), Namespace(), Namespace(salt="a")):
        assert why(cache, ids(9, 1), space) == MatchEnd(Reason.COLD, 0)
    assert why(cache, ids(9, 2), A_SALTED) == MatchEnd(Reason.COLD, 0)


def test_what_a_salt_hides_is_not_told_to_the_same_tenant_either() -> None:
    cache = make_cache(64, SIZE)
    cache.mark_public(pack(ids(4, 5)))
    serve(cache, ids(8, 1), A_SALTED)
    serve(cache, [*ids(4, 5), *ids(8, 2)], A_SALTED)
    for space in (A, Namespace(tenant="a", salt="t"), Namespace(tenant="a", adapter="l")):
        assert why(cache, ids(9, 1), space) == MatchEnd(Reason.COLD, 0)
    assert why(cache, [*ids(4, 5), *ids(9, 2)], A) == MatchEnd(Reason.COLD, 4)
    assert cache._tree.heads == {}


@pytest.mark.parametrize("evicted", [False, True])
def test_what_is_only_in_flight_in_another_namespace_is_not_told(evicted: bool) -> None:
    other = Namespace(tenant="a", adapter="l")
    cache = make_cache(64, SIZE)
    if evicted:
        serve(cache, ids(8, 1), A)
        cache.evict(2)
    lease = cache.lease(cache.match(pack(ids(9, 1)), A))
    for _ in range(2):
        assert cache.announce(lease, pack(ids(8, 1)), take(cache, 2))
        assert why(cache, ids(9, 1), other) == MatchEnd(Reason.COLD, 0)
        assert_sound(cache, [lease])
        cache.withdraw(lease)
        assert why(cache, ids(9, 1), other) == MatchEnd(Reason.COLD, 0)
    assert cache.announce(lease, pack(ids(8, 1)), take(cache, 2))
    cache.commit(lease)
    assert why(cache, ids(9, 1), other) == MatchEnd(Reason.NAMESPACE, 0)
    cache.release(lease)
    cache.evict(1)
    assert why(cache, ids(9, 1), other) == MatchEnd(Reason.NAMESPACE, 0)
    cache.evict(1)
    assert why(cache, ids(9, 1), other) == MatchEnd(Reason.COLD, 0)
    assert cache._tree.heads == {}


def test_nobody_in_particular_is_not_told_of_other_namespaces() -> None:
    cache = make_cache(64, SIZE)
    serve(cache, ids(8, 1), Namespace(salt="s"))
    assert why(cache, ids(9, 1)) == MatchEnd(Reason.COLD, 0)
    assert why(cache, ids(9, 1), Namespace(salt="t")) == MatchEnd(Reason.COLD, 0)


def test_a_tenants_other_namespace_is_told_below_a_public_path_too() -> None:
    cache = make_cache(64, SIZE)
    cache.mark_public(pack(ids(8, 1)))
    prompt = [*ids(8, 1), *ids(8, 2), 0]
    serve(cache, prompt, A)
    assert why(cache, prompt, A_SALTED) == MatchEnd(Reason.NAMESPACE, 8)
    assert why(cache, prompt, B) == MatchEnd(Reason.COLD, 8)


def test_a_prompt_that_parts_inside_a_public_path_is_not_told_of_what_hangs_at_its_end() -> None:
    cache = make_cache(64, SIZE)
    cache.mark_public(pack(ids(12, 1)))
    serve(cache, [*ids(12, 1), *ids(8, 2)], A)
    assert why(cache, [*ids(4, 1), *ids(9, 2)], A_SALTED) == MatchEnd(Reason.COLD, 4)
    assert why(cache, [*ids(12, 1), *ids(9, 2)], A_SALTED) == MatchEnd(Reason.NAMESPACE, 12)


def test_what_has_left_the_other_namespace_is_told_no_longer() -> None:
    for flushed in (False, True):
        cache = make_cache(64, SIZE)
        serve(cache, ids(8, 1), A)
        assert (cache.flush() if flushed else cache.evict(64)) == 2
        assert why(cache, ids(9, 1), A_SALTED) == MatchEnd(Reason.COLD, 0)
        serve(cache, ids(8, 1), A)
        assert why(cache, ids(9, 1), A_SALTED) == MatchEnd(Reason.NAMESPACE, 0)


def test_what_a_detached_tree_stores_is_not_told() -> None:
    cache = make_cache(64, SIZE)
    running, waiting = begin(cache, ids(8, 1), A), cache.lease(cache.match(pack(ids(8, 3)), A))
    cache.flush()
    cache.publish(running, pack(ids(4, 2)), take(cache, 1))
    cache.publish(waiting, pack(ids(8, 3)), take(cache, 2))
    for seed in (1, 3):
        assert why(cache, ids(9, seed), A_SALTED) == MatchEnd(Reason.COLD, 0)
    cache.release(running)
    cache.release(waiting)
    assert_sound(cache)
    assert cache.pool.tree_blocks == 0


# Counting


def test_a_branch_of_a_detached_tree_below_a_public_path_is_forgotten_with_it() -> None:
    cache = make_cache(64, SIZE)
    cache.mark_public(pack(ids(8, 1)))
    prompt = [*ids(8, 1), *ids(8, 2)]
    waiting = cache.lease(cache.match(pack(prompt), A))
    cache.flush()
    cache.publish(waiting, pack(prompt), take(cache, 4))
    cache.release(waiting)
    assert_sound(cache)
    assert cache._tree.heads == {}


def test_a_branch_that_is_withdrawn_with_the_public_path_above_it_is_forgotten() -> None:
    cache = make_cache(64, SIZE)
    cache.mark_public(pack(ids(8, 1)))
    owner = cache.lease(cache.match(pack(ids(9, 1)), B))
    assert cache.announce(owner, pack(ids(8, 1)), take(cache, 2))
    other = cache.lease(cache.match(pack([*ids(8, 1), *ids(9, 2)]), A))
    assert cache.announce(other, pack(ids(8, 2)), take(cache, 2))
    cache.withdraw(owner)
    assert cache.is_broken(other)
    assert cache._tree.heads == {}
    assert_sound(cache, [owner, other])
    cache.release(other)
    cache.release(owner)
    assert cache._tree.heads == {}
    assert cache.pool.free_blocks == 64
    assert_sound(cache)
