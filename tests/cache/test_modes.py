from __future__ import annotations

import pytest

from radix_engine.cache import ALL, CacheMode, Lease, MatchEnd, PrefixCache, Reason, dump, pack
from tests.cache.requests import Clock, serve
from tests.cache.trees import assert_sound, edges, ids, make_cache, take

TOKENS = ids(24, 1)


def ask(cache: PrefixCache, tokens: list[int], mode: CacheMode) -> Lease:
    match = cache.match(pack(tokens), mode=mode)
    cache.account(match, pack(tokens))
    return cache.lease(match)


def test_the_modes_say_who_reads_and_who_stores() -> None:
    assert [(mode.reads, mode.stores) for mode in CacheMode] == [
        (True, True),
        (True, False),
        (False, True),
        (False, False),
    ]
    assert [mode.without_reading for mode in CacheMode] == [
        CacheMode.WRITE_ONLY,
        CacheMode.BYPASS,
        CacheMode.WRITE_ONLY,
        CacheMode.BYPASS,
    ]


@pytest.mark.parametrize("partial", [False, True])
def test_a_request_that_bypasses_the_cache_is_served_nothing(partial: bool) -> None:
    cache = make_cache(16, 4, partial_blocks=partial)
    serve(cache, TOKENS)
    match = cache.match(pack(TOKENS), mode=CacheMode.BYPASS)
    assert (match.num_tokens, match.copy_rows, match.copy_source) == (0, 0, -1)
    assert cache.account(match, pack(TOKENS)) == MatchEnd(Reason.BYPASSED, 0)
    assert cache.unpinned_blocks(match) == 0


def test_a_request_that_bypasses_the_cache_leaves_no_trace_in_it() -> None:
    clock = Clock()
    cache = make_cache(16, 4, clock=clock, ttl=10.0, events=True)
    stream = cache.subscribe(ALL)
    serve(cache, TOKENS)
    before = dump(cache, 5.0), edges(cache), cache.pool.tree_blocks, stream.next_sequence
    clock.now = 5.0
    for _ in range(3):  # a repetition finds nothing either
        lease = ask(cache, TOKENS, CacheMode.BYPASS)
        assert lease.num_tokens == 0
        for _ in range(3):  # computed in chunks, in blocks of its own
            blocks = take(cache, 2)
            assert_sound(cache, [lease], [blocks])
            cache.free(blocks)
        cache.release(lease)
        assert_sound(cache)
    assert (dump(cache, 5.0), edges(cache), cache.pool.tree_blocks, stream.next_sequence) == before
    clock.now = 11.0
    assert cache.expire() == 6  # which the bypassing requests have not kept alive


def test_a_bypass_tells_nothing_of_what_is_stored() -> None:
    cache = make_cache(16, 4)
    serve(cache, TOKENS)
    cold = make_cache(16, 4)
    for tokens in (TOKENS, ids(8, 9), [], [7]):
        ends = []
        for each in (cache, cold):
            match = each.match(pack(tokens), mode=CacheMode.BYPASS)
            ends.append((match.num_tokens, each.explain(match, pack(tokens))))
        assert ends[0] == ends[1] == (0, MatchEnd(Reason.BYPASSED, 0))


def test_a_read_only_request_hits_as_any_other_and_adds_nothing() -> None:
    cache = make_cache(16, 4, partial_blocks=True)
    serve(cache, TOKENS)
    asked = [*TOKENS[:14], *ids(8, 9)]
    reading = cache.match(pack(asked), mode=CacheMode.READ_ONLY)
    other = cache.match(pack(asked))
    assert reading[:-1] == other[:-1]
    assert (reading.num_tokens, reading.copy_rows) == (14, 2)
    for _ in range(3):  # also when it is aborted and asked again
        lease = ask(cache, asked, CacheMode.READ_ONLY)
        blocks = take(cache, 3)
        assert_sound(cache, [lease], [blocks])
        cache.free(blocks)
        cache.release(lease)
        assert_sound(cache)
        assert cache.match(pack(asked)).num_tokens == 14
    assert sorted(token for edge in edges(cache) for token in edge) == sorted(TOKENS)
    assert cache.pool.tree_blocks == 6


def test_a_read_only_hit_keeps_what_it_read_alive() -> None:
    clock = Clock()
    cache = make_cache(16, 4, clock=clock, ttl=10.0)
    serve(cache, TOKENS)
    clock.now = 8.0
    cache.release(ask(cache, [*TOKENS, 0], CacheMode.READ_ONLY))
    clock.now = 15.0
    assert cache.expire() == 0
    assert_sound(cache)


def test_what_requests_without_the_cache_ask_counts_as_asked_and_not_as_served() -> None:
    cache = make_cache(16, 4)
    serve(cache, TOKENS)  # 24 tokens asked, 0 served
    cache.release(ask(cache, [*TOKENS, 0], CacheMode.READ_ONLY))  # 25 asked, 24 served
    cache.release(ask(cache, [*TOKENS, 0], CacheMode.BYPASS))  # 25 asked, 0 served
    assert cache.hit_rate_curve()[1.0] == 24 / 74
    assert cache.ends == {Reason.COLD: 1, Reason.FULL: 1, Reason.BYPASSED: 1}
