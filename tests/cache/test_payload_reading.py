"""What is read along a prompt: the payload of what a match covers, and of what comes after it."""

from __future__ import annotations

import pytest

from radix_engine.cache import (
    DEFAULT,
    CacheMode,
    MatchEnd,
    Namespace,
    PrefixCache,
    Reason,
    first_known,
    pack,
)
from radix_engine.cache.flat import FlatCache
from tests.cache.test_payload import hold_with, missing, payload_of, publish
from tests.cache.trees import ids, lease_nothing, lease_of, make_cache, store, take

SIZE = 4


def read(cache: PrefixCache, tokens: list[int], namespace: Namespace = DEFAULT) -> bytes:
    match = cache.match(pack(tokens), namespace)
    return cache.payload(match, pack(tokens))


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 11, 12, 15, 16])
def test_a_stored_prompts_payload_is_read_to_its_last_token(count: int, partial: bool) -> None:
    cache = make_cache(16, SIZE, partial_blocks=partial)
    cache.release(hold_with(cache, ids(16, 1)))
    assert read(cache, ids(count, 1)) == payload_of(ids(count, 1))
    assert read(cache, [*ids(16, 1), 3]) == payload_of(ids(16, 1))


@pytest.mark.parametrize("common", [0, 1, 4, 6, 8, 9])
def test_it_ends_where_the_prompt_leaves_what_is_stored(common: int) -> None:
    cache = make_cache(16, SIZE)
    cache.release(hold_with(cache, ids(12, 1)))
    cache.release(hold_with(cache, [*ids(4, 1), *ids(8, 9)]))
    assert read(cache, [*ids(common, 1), 499, 499]) == payload_of(ids(common, 1))


def test_where_nothing_was_given_or_it_is_in_flight_it_is_missing() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(4, 1))
    lease = lease_of(cache, [*ids(4, 1), 0])
    publish(cache, lease, ids(8, 1), payload_of(ids(8, 1)))
    assert cache.announce(lease, pack(ids(12, 1)[8:]), take(cache, 1))
    assert read(cache, ids(13, 1)) == missing(4) + payload_of(ids(8, 1))[16:] + missing(4)


def test_a_request_that_reads_nothing_reads_no_payload() -> None:
    cache = make_cache(16, SIZE)
    cache.release(hold_with(cache, ids(8, 1)))
    match = cache.match(pack(ids(8, 1)), mode=CacheMode.WRITE_ONLY)
    assert cache.payload(match, pack(ids(8, 1))) == b""


def test_what_others_keep_behind_a_public_path_is_not_read() -> None:
    cache = make_cache(16, SIZE, partial_blocks=True)
    cache.mark_public(pack(ids(8, 1)))
    one, other = Namespace(tenant="one"), Namespace(tenant="other")
    lease = cache.lease(cache.match(pack(ids(17, 1)), one))
    publish(cache, lease, ids(16, 1), payload_of(ids(16, 1)))
    assert read(cache, ids(17, 1), one) == payload_of(ids(16, 1))
    assert read(cache, ids(17, 1), other) == payload_of(ids(8, 1))
    assert read(cache, ids(17, 1), Namespace(tenant="one", salt="s")) == payload_of(ids(8, 1))
    open_to_all = hold_with(cache, ids(16, 1))  # it goes on where the public path does
    assert read(cache, ids(17, 1)) == payload_of(ids(16, 1))
    assert read(cache, ids(17, 1), other) == payload_of(ids(8, 1))
    cache.release(open_to_all)


def test_a_block_in_quarantine_tells_nothing() -> None:
    cache = make_cache(16, SIZE)
    lease = hold_with(cache, ids(12, 1))
    cache.quarantine([lease.blocks()[1:2]])
    assert read(cache, ids(12, 1)) == payload_of(ids(4, 1))


def test_the_first_known_are_those_before_one_that_is_missing() -> None:
    assert first_known(b"") == 0
    assert first_known(payload_of(ids(5, 1))) == 5
    assert first_known(missing(2) + payload_of(ids(5, 1))) == 0
    assert first_known(payload_of(ids(3, 1)) + missing(1) + payload_of(ids(1, 1))) == 3
    assert first_known(b"\x01\x02\xff\xff\xff\xff\x03\x04") == 2


@pytest.mark.parametrize("most", range(18))
@pytest.mark.parametrize("cuts", [(16,), (4, 8, 16), (12, 16)])
def test_a_match_covers_no_more_than_was_asked_for(most: int, cuts: tuple[int, ...]) -> None:
    """However many nodes the path has, and whatever it went on from."""
    for partial in (False, True):
        cache = make_cache(64, SIZE, partial_blocks=partial)
        store(cache, ids(16, 1))
        for cut in cuts:
            store(cache, [*ids(cut, 1), *ids(4, 9 + cut)])
        prompt = pack(ids(17, 1))
        whole = cache.match(prompt)
        assert whole.num_tokens == 16
        match = cache.match(prompt, most_tokens=most)
        expected = min(most, 16) if partial else min(most, 16) // SIZE * SIZE
        assert (match.num_tokens, match.prompt_tokens) == (expected, 17)
        assert cache.match(prompt, most_tokens=most, near=whole, shared_tokens=17) == match
        assert cache.match(prompt, near=match, shared_tokens=17) == whole
        full = expected == 16
        reason = MatchEnd(Reason.FULL if full else Reason.BYPASSED, expected)
        assert cache.account(match, prompt) == reason
        lease = cache.lease(match)
        assert lease.num_tokens == expected // SIZE * SIZE
        cache.release(lease)
        rates = cache.hit_rate_curve()
        assert rates[1.0] == pytest.approx(min(most, 16) // SIZE * SIZE / 17)
        assert cache.audit([], []) == []


def test_an_end_before_what_was_asked_for_has_its_own_reason() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(8, 1))
    prompt = pack([*ids(8, 1), *ids(9, 3)])
    assert cache.explain(cache.match(prompt, most_tokens=12), prompt).reason is Reason.COLD
    other = pack([*ids(5, 1), *ids(9, 3)])
    assert cache.explain(cache.match(other, most_tokens=12), other).reason is Reason.DIVERGED


def test_the_flat_index_keeps_no_payload_and_covers_no_more_than_was_asked_for() -> None:
    cache = FlatCache(16, SIZE)
    blocks = cache.allocate(4)
    assert blocks is not None
    lease = cache.lease(cache.match(b""))
    cache.publish(lease, pack(ids(16, 1)), blocks, payload_of(ids(16, 1)))
    prompt = pack(ids(17, 1))
    assert [cache.match(prompt, most_tokens=most).num_tokens for most in (0, 3, 4, 11, 99)] == [
        0,
        0,
        4,
        8,
        16,
    ]
    assert cache.payload(cache.match(prompt), prompt) == b""


def test_nothing_is_read_of_an_empty_cache() -> None:
    cache = make_cache(4, SIZE)
    assert read(cache, ids(8, 1)) == b""
    assert lease_nothing(cache).payload() == b""
