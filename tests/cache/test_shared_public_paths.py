"""A path that an operator marked public: shared by all, and continued by each for itself."""

from __future__ import annotations

from radix_engine.cache import (
    DEFAULT,
    MatchEnd,
    Namespace,
    PrefixCache,
    Reason,
    pack,
)
from tests.cache.requests import begin, reach, serve, why
from tests.cache.trees import assert_sound, edges, ids, make_cache, take

A, B = Namespace(tenant="a"), Namespace(tenant="b")
PUBLIC = ids(8, 1)  # two blocks of 4


def public_cache(**options: object) -> PrefixCache:
    cache = make_cache(256, 4, **options)
    cache.mark_public(pack(PUBLIC))
    return cache


# Public paths


def test_a_public_path_is_shared_by_all_and_what_follows_it_by_nobody() -> None:
    cache = public_cache()
    serve(cache, [*PUBLIC, *ids(8, 2)], A)
    for other in (B, DEFAULT, Namespace(salt="s")):
        assert reach(cache, [*PUBLIC, *ids(8, 2)], other) == 8
    assert reach(cache, [*PUBLIC, *ids(8, 2)], A) == 16
    serve(cache, [*PUBLIC, *ids(8, 2)], B)
    assert cache.pool.tree_blocks == 2 + 2 + 2
    assert reach(cache, [*PUBLIC, *ids(8, 2)], B) == 16
    assert reach(cache, [*PUBLIC, *ids(8, 2)], DEFAULT) == 8


def test_a_public_path_holds_for_its_weights_and_its_adapter_alone() -> None:
    cache = make_cache(32, 4)
    cache.mark_public(pack(PUBLIC), Namespace(adapter="l", weights=1))
    serve(cache, PUBLIC, Namespace(tenant="a", adapter="l", weights=1))
    assert reach(cache, PUBLIC, Namespace(tenant="b", adapter="l", weights=1)) == 8
    assert reach(cache, PUBLIC, Namespace(tenant="b", adapter="l", weights=2)) == 0
    assert reach(cache, PUBLIC, Namespace(tenant="b", weights=1)) == 0


def test_only_whole_blocks_of_a_public_path_are_shared() -> None:
    cache = make_cache(32, 4, partial_blocks=True)
    cache.mark_public(pack(ids(7, 1)))
    serve(cache, ids(12, 1), A)
    match = cache.match(pack(ids(12, 1)), B)
    assert (match.num_tokens, match.copy_rows) == (4, 0)


def test_a_mark_of_less_than_a_block_shares_nothing() -> None:
    cache = make_cache(32, 4)
    cache.mark_public(pack(ids(3, 1)))
    serve(cache, ids(12, 1), A)
    assert reach(cache, ids(12, 1), B) == 0


def test_a_mark_inside_an_edge_shares_the_edge_up_to_it() -> None:
    cache = make_cache(32, 4, partial_blocks=True)
    serve(cache, ids(16, 1))  # one edge of four blocks, everybody's
    cache.mark_public(pack(PUBLIC))
    match = cache.match(pack(ids(16, 1)), A)
    assert (match.num_tokens, match.copy_rows) == (8, 0)
    assert why(cache, ids(16, 1), A) == MatchEnd(Reason.COLD, 8)
    serve(cache, ids(16, 1), A)
    assert cache.pool.tree_blocks == 4 + 2
    assert reach(cache, ids(16, 1), A) == 16
    assert reach(cache, ids(16, 1)) == 16
    assert reach(cache, ids(16, 1), B) == 8


def test_a_prompt_that_parts_from_a_public_path_shares_it_up_to_there() -> None:
    cache = public_cache()
    serve(cache, [*PUBLIC, *ids(8, 2)], A)
    parted = [*PUBLIC[:6], *ids(10, 3)]
    assert reach(cache, parted, B) == 4
    serve(cache, parted, B)
    assert cache.pool.tree_blocks == 4 + 3
    assert reach(cache, parted, B) == 16
    assert reach(cache, parted, A) == 4
    assert reach(cache, [*PUBLIC, *ids(8, 2)], A) == 16


def test_of_two_public_paths_the_longer_common_one_counts() -> None:
    cache = public_cache()
    cache.mark_public(pack([*PUBLIC, *ids(4, 2)]))
    cache.mark_public(pack([*PUBLIC, *ids(4, 3)]))
    for own in (5, 6):
        serve(cache, [*PUBLIC, *ids(4, 2), *ids(4, own)], A)
    serve(cache, [*PUBLIC, *ids(4, 4)], A)
    assert reach(cache, [*PUBLIC, *ids(4, 2), *ids(4, 5)], B) == 12
    assert reach(cache, [*PUBLIC, *ids(4, 4)], B) == 8
    assert reach(cache, [*PUBLIC, *ids(4, 2), *ids(4, 5)], A) == 16


def test_a_run_published_across_the_end_of_a_public_path_is_cut_there() -> None:
    cache = public_cache()
    lease = cache.lease(cache.match(pack([*PUBLIC, *ids(8, 2)]), A))
    blocks = take(cache, 4)
    payload = b"".join(bytes([n] * 4) for n in range(16))
    table = cache.publish(lease, pack([*PUBLIC, *ids(8, 2)]), blocks, payload)
    assert list(table) == list(blocks) == list(lease.blocks())
    assert lease.payload() == payload
    assert edges(cache) == sorted([PUBLIC, ids(8, 2)])
    assert_sound(cache, [lease])
    other = cache.lease(cache.match(pack([*PUBLIC, 0]), B))
    assert list(other.blocks()) == list(blocks[:2])
    assert other.payload() == payload[:32]
    assert_sound(cache, [lease, other])


def test_the_second_to_publish_a_public_path_takes_over_the_blocks_of_the_first() -> None:
    cache = public_cache()
    prompt = [*PUBLIC, *ids(8, 2)]
    one, two = (cache.lease(cache.match(pack(prompt), space)) for space in (A, B))
    first = cache.publish(one, pack(prompt), take(cache, 4))
    own = take(cache, 4)
    second = cache.publish(two, pack(prompt), own)
    assert list(second) == [*first[:2], *own[2:]]
    assert cache.counters.duplicate_blocks == 2
    assert_sound(cache, [one, two])


def test_a_prompt_that_is_just_the_public_path_leaves_its_last_token_to_compute() -> None:
    for partial in (False, True):
        cache = public_cache(partial_blocks=partial)
        serve(cache, [*PUBLIC, *ids(8, 2)], A)
        for space in (A, B, DEFAULT):
            match = cache.match(pack(PUBLIC), space)
            assert match.num_tokens - match.copy_rows == 4
            lease = cache.lease(match)
            assert_sound(cache, [lease])
            cache.release(lease)
        assert_sound(cache)


def test_a_public_path_that_was_evicted_is_served_to_nobody() -> None:
    cache = public_cache()
    prompt = [*PUBLIC, *ids(8, 2)]
    serve(cache, prompt, A)
    assert cache.evict(4) == 4
    assert reach(cache, prompt, A) == 0
    assert reach(cache, PUBLIC, A) == 0
    serve(cache, prompt, A)
    assert cache.evict(3) == 3  # the own part, and the end of the public one
    assert reach(cache, prompt, A) == 4
    assert why(cache, [*prompt, 0], A).reason is Reason.EVICTED
    serve(cache, prompt, A)
    assert reach(cache, prompt, A) == 16


def test_the_shared_namespace_still_finds_its_own_after_others_used_the_public_path() -> None:
    cache = public_cache()
    serve(cache, [*PUBLIC, *ids(8, 2)])
    serve(cache, [*PUBLIC, *ids(8, 3)], A)
    assert reach(cache, [*PUBLIC, *ids(8, 2)]) == 16


def test_what_was_stored_before_the_mark_is_not_found_any_more_and_harms_nothing() -> None:
    cache = make_cache(32, 4)
    serve(cache, [*PUBLIC, *ids(8, 2)], A)
    running = begin(cache, [*PUBLIC, *ids(12, 2)], A)
    cache.mark_public(pack(PUBLIC))
    assert reach(cache, [*PUBLIC, *ids(8, 2)], A) == 0
    assert_sound(cache, [running])
    cache.release(running)
    serve(cache, [*PUBLIC, *ids(8, 2)], A)
    assert reach(cache, [*PUBLIC, *ids(8, 2)], A) == 16
    assert reach(cache, [*PUBLIC, *ids(8, 2)], B) == 8


def test_an_unmarked_path_is_shared_no_longer_and_a_running_request_is_untouched() -> None:
    cache = public_cache()
    prompt = [*PUBLIC, *ids(8, 2)]
    running = begin(cache, prompt, A)
    match = cache.match(pack(prompt), B)
    assert cache.unmark_public(pack(PUBLIC))
    assert not cache.unmark_public(pack(PUBLIC))
    assert match.version != cache.version  # nobody leases by what held before
    assert reach(cache, prompt, A) == reach(cache, prompt, B) == 0
    assert reach(cache, prompt) == 8
    longer = [*prompt, *ids(4, 3)]
    cache.publish(running, pack(ids(4, 3)), take(cache, 1))
    assert_sound(cache, [running])
    cache.release(running)
    cache.mark_public(pack(PUBLIC))
    assert reach(cache, longer, A) == 20
    assert cache.evict(256) == 5
    assert_sound(cache)
