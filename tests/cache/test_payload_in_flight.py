"""What a request computes for blocks that it announced goes with their run from the commit on."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import pytest

from radix_engine.cache import Lease, Namespace, OwnershipError, PrefixCache, pack
from radix_engine.cache.payload import MISSING_PAYLOAD
from tests.cache.steps import ALL_OF_IT, SIZE, STARTS, announce, announce_after
from tests.cache.trees import assert_sound, hold, ids, lease_of, make_cache, store, take


def payload_of(tokens: Sequence[int], offset: int = 0) -> bytes:
    """A value for each token that tells it and its place."""
    return array("f", [-token - index / 64 for index, token in enumerate(tokens, offset)]).tobytes()


def missing(tokens: int) -> bytes:
    return MISSING_PAYLOAD * tokens


def seen(cache: PrefixCache, tokens: list[int]) -> bytes:
    """What a request for a longer prompt reads."""
    lease = lease_of(cache, [*tokens, 0])
    payload = lease.payload()
    cache.release(lease)
    return payload


@pytest.mark.parametrize("start", STARTS)
def test_a_payload_that_comes_with_the_commit_is_read_from_then_on(
    start: Callable[[PrefixCache], tuple[Lease, int]],
) -> None:
    cache = make_cache(40, SIZE)
    owner, computed = start(cache)
    assert announce_after(cache, owner, ALL_OF_IT)
    assert owner.payload() == missing(20)
    cache.commit(owner, payload_of(ALL_OF_IT)[4 * computed :])
    expected = missing(computed) + payload_of(ALL_OF_IT)[4 * computed :]
    assert owner.payload() == expected
    cache.release(owner)
    for length in (20, 16, 12, 4):
        assert seen(cache, ALL_OF_IT[:length]) == expected[: 4 * length]
    assert_sound(cache)


@pytest.mark.parametrize("at", [4, 8, 12])
def test_a_run_that_others_cut_in_flight_gets_its_payload_in_all_parts(at: int) -> None:
    cache = make_cache(32, SIZE)
    owner = announce(cache, ids(16, 1))
    short = lease_of(cache, [*ids(at, 1), 0])
    branch = announce(cache, [*ids(at, 1), *ids(4, 2)])
    cache.commit(owner, payload_of(ids(16, 1)))
    cache.commit(branch, payload_of(ids(4, 2), offset=at))
    assert owner.payload() == payload_of(ids(16, 1))
    assert short.payload() == payload_of(ids(16, 1))[: 4 * at]
    assert branch.payload() == short.payload() + payload_of(ids(4, 2), offset=at)
    assert_sound(cache, [owner, short, branch])


def test_chunks_of_a_prompt_bring_their_payloads_one_by_one() -> None:
    cache = make_cache(16, SIZE)
    prompt = ids(24, 1)
    lease = lease_of(cache, prompt)
    expected = b""
    for end, given in ((8, True), (12, False), (20, True), (24, True)):
        assert announce_after(cache, lease, prompt[:end])
        part = payload_of(prompt)[len(expected) : 4 * end]
        cache.commit(lease, part if given else b"")
        expected += part if given else missing(len(part) // 4)
        assert lease.payload() == expected
        assert_sound(cache, [lease])


def test_one_commit_brings_the_payload_of_all_that_was_announced() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(8, 1))
    cache.evict(2)
    lease = announce(cache, ids(8, 1))  # a ghost, which does not grow
    assert announce_after(cache, lease, ids(16, 1))
    cache.commit(lease, payload_of(ids(16, 1)))
    assert lease.payload() == payload_of(ids(16, 1))
    assert_sound(cache, [lease])


@pytest.mark.parametrize("again", [True, False])
def test_a_ghost_that_is_computed_again_reads_the_new_payload_or_else_the_old(again: bool) -> None:
    cache = make_cache(16, SIZE)
    for offset in (0, 50):
        lease = announce(cache, ids(16, 1))
        given = payload_of(ids(16, 1), offset)
        cache.commit(lease, given if again or not offset else b"")
        assert lease.payload() == payload_of(ids(16, 1), offset if again else 0)
        cache.release(lease)
        cache.evict(4)


def test_a_payload_goes_on_below_a_public_path() -> None:
    cache = make_cache(16, SIZE)
    cache.mark_public(pack(ids(8, 1)))
    lease = cache.lease(cache.match(pack(ids(17, 1)), Namespace(tenant="one")))
    for end in (8, 16):
        assert announce_after(cache, lease, ids(end, 1))
        cache.commit(lease, payload_of(ids(end, 1))[4 * (end - 8) :])
    assert lease.payload() == payload_of(ids(16, 1))
    other = cache.lease(cache.match(pack(ids(17, 1)), Namespace(tenant="other")))
    assert other.payload() == payload_of(ids(8, 1))
    assert_sound(cache, [lease, other])


def test_a_request_that_runs_through_a_flush_keeps_its_payload() -> None:
    cache = make_cache(16, SIZE)
    lease = hold(cache, ids(4, 1))
    assert announce_after(cache, lease, ids(12, 1))
    cache.flush()
    cache.commit(lease, payload_of(ids(12, 1))[16:])
    assert lease.payload() == missing(4) + payload_of(ids(12, 1))[16:]
    assert_sound(cache, [lease])


@pytest.mark.parametrize("values", [7, 9, 12])
def test_a_payload_that_does_not_fit_what_was_announced_is_refused(values: int) -> None:
    cache = make_cache(8, SIZE)
    lease = hold(cache, ids(4, 1))
    assert announce_after(cache, lease, ids(12, 1))
    with pytest.raises(ValueError, match=f"{4 * values} bytes of payload for 8 tokens"):
        cache.commit(lease, payload_of(ids(values, 1)))
    assert cache.pool.in_flight_blocks == 2
    assert lease.payload() == missing(12)
    assert_sound(cache, [lease])
    cache.commit(lease)
    with pytest.raises(ValueError, match="4 bytes of payload for 0 tokens"):
        cache.commit(lease, payload_of([1]))


def test_a_refused_commit_leaves_no_payload() -> None:
    cache = make_cache(16, SIZE)
    owner = announce(cache, ids(8, 1))
    other = announce(cache, ids(16, 1))
    with pytest.raises(OwnershipError, match="in flight"):
        cache.commit(other, payload_of(ids(8, 2)))
    assert other.payload() == missing(16)
    cache.commit(owner)
    cache.commit(other, payload_of(ids(8, 2)))
    assert other.payload() == missing(8) + payload_of(ids(8, 2))
    assert_sound(cache, [owner, other])


def test_a_prompt_in_chunks_is_not_copied_for_each_of_them() -> None:
    cache = make_cache(64, SIZE)
    prompt = ids(200, 1)
    lease = lease_of(cache, prompt)
    buffers = set()
    for end in range(8, 201, 8):
        assert announce_after(cache, lease, prompt[:end])
        cache.commit(lease, payload_of(prompt)[4 * (end - 8) : 4 * end])
        buffers.add(id(lease.node.payload))
    assert lease.payload() == payload_of(prompt)
    assert len(buffers) == 1
    assert take(cache, 1)
