"""What is told of one prompt: its segments, and where it parts from what is stored."""

from __future__ import annotations

from typing import Any

from radix_engine.cache import (
    DEFAULT,
    CacheMode,
    Explanation,
    MatchEnd,
    Namespace,
    PrefixCache,
    Reason,
    Segment,
    explain_prompt,
    pack,
)
from tests.cache.trees import ids, lease_of, make_cache, store, take

TENANT = Namespace(tenant="one")


def explained(
    cache: PrefixCache, tokens: list[int], namespace: Namespace = DEFAULT, **more: Any
) -> Explanation:
    return explain_prompt(cache, pack(tokens), namespace, **more)


def store_in(cache: PrefixCache, namespace: Namespace, tokens: list[int]) -> None:
    lease = cache.lease(cache.match(pack([*tokens, 0]), namespace))
    run = tokens[lease.num_tokens :]
    cache.publish(lease, pack(run), take(cache, len(run) // cache.block_size))
    cache.release(lease)


def test_a_prompt_that_leaves_a_branch_is_told_both_sides_at_the_exact_token() -> None:
    cache = make_cache(64, 4, partial_blocks=True)
    store(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
    found = explained(cache, [1, 2, 3, 4, 5, 6, 70, 80, 90], around=3)
    assert found.end == MatchEnd(Reason.DIVERGED, 6, branch_tokens=12)
    assert found.segments == [Segment(0, 6, "cached"), Segment(6, 9, "new")]
    assert found.parting is not None
    assert (found.parting.position, found.parting.before) == (6, [4, 5, 6])
    assert (found.parting.prompt, found.parting.stored) == ([70, 80, 90], [7, 8, 9])


def test_of_several_branches_the_nearest_is_told() -> None:
    cache = make_cache(64, 4)
    for last in ([5, 6, 0, 0], [5, 6, 7, 0], [9, 9, 9, 9]):
        store(cache, [1, 2, 3, 4, *last])
    found = explained(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert found.parting is not None
    assert (found.parting.position, found.parting.stored[0]) == (7, 0)
    assert found.segments == [Segment(0, 4, "cached"), Segment(4, 9, "new")]


def test_a_request_that_is_stored_by_now_is_told_where_it_parted_when_it_came() -> None:
    cache = make_cache(64, 4)
    store(cache, [1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 1])
    mine = [1, 2, 3, 4, 5, 6, 70, 80, 90, 90, 90, 90]
    was = explained(cache, mine).end
    store(cache, mine)
    found = explained(cache, [*mine, 5], was=was)
    assert found.end.reason is Reason.FULL
    assert found.cached_tokens == 12
    assert found.parting is not None
    assert (found.parting.position, found.parting.prompt[0], found.parting.stored[0]) == (6, 70, 7)


def test_what_was_evicted_or_is_in_flight_is_told_apart_from_what_is_new() -> None:
    cache = make_cache(64, 4)
    store(cache, ids(16, 1))
    cache.evict(2)
    found = explained(cache, [*ids(16, 1), 3, 3])
    assert found.end.reason is Reason.EVICTED
    assert found.segments == [
        Segment(0, 8, "cached"),
        Segment(8, 16, "evicted"),
        Segment(16, 18, "new"),
    ]
    lease = lease_of(cache, ids(13, 2))
    cache.announce(lease, pack(ids(8, 2)), take(cache, 2))
    found = explained(cache, ids(13, 2))
    assert found.segments == [Segment(0, 8, "in_flight"), Segment(8, 13, "new")]


def test_rows_that_are_copied_from_another_branch_count_as_cached() -> None:
    cache = make_cache(64, 4, partial_blocks=True)
    store(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    cache.evict(1)
    store(cache, [1, 2, 3, 4, 5, 6, 0, 0])
    found = explained(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert found.segments == [
        Segment(0, 6, "cached"),
        Segment(6, 8, "evicted"),
        Segment(8, 9, "new"),
    ]


def test_nothing_is_told_of_another_namespaces_branch() -> None:
    cache = make_cache(64, 4)
    store_in(cache, TENANT, [1, 2, 3, 4, 5, 6, 7, 8])
    for other in (Namespace(), Namespace(tenant="two"), Namespace(tenant="one", salt="s")):
        found = explained(cache, [1, 2, 3, 4, 5, 60, 70, 80], other)
        assert found.parting is None
        assert found.segments == [Segment(0, 8, "new")]


def test_below_a_public_path_only_the_own_branch_is_told() -> None:
    cache = make_cache(64, 4)
    public = [1, 2, 3, 4]
    cache.mark_public(pack(public))
    store_in(cache, TENANT, [*public, 5, 6, 7, 8])
    prompt = [*public, 5, 6, 70, 80, 90]
    assert explained(cache, prompt, Namespace(tenant="two")).parting is None
    own = explained(cache, prompt, TENANT)
    assert own.parting is not None
    assert (own.parting.position, own.parting.stored[0]) == (6, 7)


def test_what_others_stored_below_a_public_path_is_not_told_whatever_is_asked() -> None:
    cache = make_cache(64, 4)
    store(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    cache.mark_public(pack([1, 2, 3, 4]))
    was = MatchEnd(Reason.DIVERGED, 6, branch_tokens=8)
    found = explained(cache, [1, 2, 3, 4, 5, 6, 70, 80, 90], Namespace(tenant="two"), was=was)
    assert found.parting is None


def test_a_look_changes_and_counts_nothing() -> None:
    cache = make_cache(64, 4)
    store(cache, ids(16, 1))
    version, ends = cache.version, dict(cache.ends)
    explained(cache, [*ids(8, 1), *ids(8, 2)])
    explained(cache, ids(16, 1), mode=CacheMode.BYPASS)
    assert (cache.version, dict(cache.ends)) == (version, ends)
    assert cache.audit([], []) == []
