"""Four bytes a token that go with a run: they split, grow and end where the tokens do."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from radix_engine.cache import Lease, Namespace, PrefixCache, pack, token_array
from radix_engine.cache.payload import MISSING_PAYLOAD
from tests.cache.trees import (
    assert_sound,
    hold,
    ids,
    lease_nothing,
    lease_of,
    make_cache,
    store,
    take,
)

SIZE = 4


def payload_of(tokens: Sequence[int], offset: int = 0) -> bytes:
    """A value for each token that tells it and its place."""
    return array(
        "f", [-(token + index / 64) for index, token in enumerate(tokens, offset)]
    ).tobytes()


def missing(tokens: int) -> bytes:
    return MISSING_PAYLOAD * tokens


def publish(cache: PrefixCache, lease: Lease, tokens: list[int], payload: bytes) -> array[int]:
    """Publish what follows the lease, with the same part of the payload."""
    start, end = lease.num_tokens, len(tokens)
    blocks = take(cache, (end - start) // SIZE)
    return cache.publish(lease, pack(tokens[start:]), blocks, payload[4 * start : 4 * end])


def hold_with(cache: PrefixCache, tokens: list[int]) -> Lease:
    lease = lease_of(cache, tokens)
    publish(cache, lease, tokens, payload_of(tokens))
    return lease


def seen(cache: PrefixCache, tokens: list[int]) -> bytes:
    """What a request for a longer prompt reads."""
    lease = lease_of(cache, [*tokens, 0])
    payload = lease.payload()
    assert len(payload) == 4 * lease.num_tokens
    cache.release(lease)
    return payload


def test_a_lease_reads_what_was_published_with_its_tokens() -> None:
    cache = make_cache(8, SIZE)
    lease = hold_with(cache, ids(12, 1))
    assert lease.payload() == payload_of(ids(12, 1))
    cache.release(lease)
    assert seen(cache, ids(12, 1)) == payload_of(ids(12, 1))
    assert lease_nothing(cache).payload() == b""
    assert_sound(cache)


def test_a_missing_value_is_not_a_number() -> None:
    (value,) = array("f", MISSING_PAYLOAD)
    assert value != value


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_payload_splits_with_its_run(at: int) -> None:
    cache = make_cache(16, SIZE)
    cache.release(hold_with(cache, ids(16, 1)))
    short = lease_of(cache, [*ids(4 * at, 1), 0])
    assert short.payload() == payload_of(ids(16, 1))[: 16 * at]
    assert seen(cache, ids(16, 1)) == payload_of(ids(16, 1))
    other = [*ids(4 * at, 1), *ids(8, 2)]
    branch = lease_of(cache, other)
    publish(cache, branch, other, payload_of(other))
    assert branch.payload() == payload_of(other)
    assert seen(cache, ids(16, 1)) == payload_of(ids(16, 1))
    assert_sound(cache, [short, branch])


def test_a_payload_grows_with_a_run_that_is_published_in_chunks() -> None:
    cache = make_cache(8, SIZE)
    prompt = ids(24, 1)
    lease = lease_of(cache, prompt)
    for end in (4, 12, 24):
        publish(cache, lease, prompt[:end], payload_of(prompt))
        assert lease.payload() == payload_of(prompt[:end])
        assert_sound(cache, [lease])


@pytest.mark.parametrize("with_payload", [(True, False), (False, True), (True, False, True)])
@pytest.mark.parametrize("in_place", [True, False])
def test_parts_that_were_published_without_one_read_as_missing(
    with_payload: tuple[bool, ...], in_place: bool
) -> None:
    cache = make_cache(24, SIZE)
    prompt = ids(8 * len(with_payload), 1)
    expected = b""
    lease = lease_of(cache, prompt)
    readers = []
    for part, given in enumerate(with_payload):
        tokens = prompt[: 8 * part + 8]
        publish(cache, lease, tokens, payload_of(prompt) if given else b"")
        expected += payload_of(prompt)[32 * part : 32 * part + 32] if given else missing(8)
        if not in_place:  # a reader keeps the node from growing
            readers.append(lease_of(cache, [*tokens, 0]))
        assert lease.payload() == expected
        assert_sound(cache, [lease, *readers])
    for held in (lease, *readers):
        cache.release(held)
    assert seen(cache, prompt) == expected
    assert seen(cache, prompt[:4]) == expected[:16]
    assert seen(cache, prompt) == expected, "and after a split"


def test_nothing_is_kept_where_nobody_gives_a_payload() -> None:
    cache = make_cache(8, SIZE)
    lease = hold(cache, ids(12, 1))
    assert lease.node.payload == b""
    assert lease.payload() == missing(12)


def test_a_duplicate_changes_no_payload_and_brings_one_where_none_was() -> None:
    cache = make_cache(16, SIZE)
    cache.release(hold_with(cache, ids(8, 1)))
    store(cache, ids(8, 2))
    for seed in (1, 2):
        late = lease_nothing(cache)
        longer = ids(12, seed)
        publish(cache, late, longer, payload_of(longer, offset=100))
        assert cache.counters.duplicate_blocks == 2 * seed
        assert (
            late.payload()
            == [
                payload_of(ids(8, 1)) + payload_of(longer, offset=100)[32:],
                payload_of(longer, offset=100),
            ][seed - 1]
        )
        cache.release(late)
        assert_sound(cache)


def test_a_duplicate_that_ends_inside_a_run_gives_its_part_alone() -> None:
    cache = make_cache(16, SIZE)
    store(cache, ids(16, 1))
    late = lease_nothing(cache)
    publish(cache, late, ids(8, 1), payload_of(ids(8, 1)))
    assert late.payload() == payload_of(ids(8, 1))
    assert seen(cache, ids(16, 1)) == payload_of(ids(8, 1)) + missing(8)
    assert_sound(cache, [late])


def test_an_evicted_tail_takes_its_payload_out_of_what_is_read() -> None:
    cache = make_cache(8, SIZE)
    cache.release(hold_with(cache, ids(16, 1)))
    cache.evict(2)
    assert seen(cache, ids(16, 1)) == payload_of(ids(8, 1))
    assert_sound(cache)


@pytest.mark.parametrize("ghost_blocks", [0, 1, 100])
def test_a_tail_that_is_stored_again_reads_what_was_published_with_it(ghost_blocks: int) -> None:
    cache = make_cache(8, SIZE, ghost_blocks=ghost_blocks)
    cache.release(hold_with(cache, ids(16, 1)))
    cache.evict(2)
    cache.release(hold_with(cache, ids(16, 1)))
    assert seen(cache, ids(16, 1)) == payload_of(ids(16, 1))
    assert_sound(cache)


def test_a_run_that_was_in_flight_has_no_payload_and_what_follows_it_has() -> None:
    cache = make_cache(8, SIZE)
    lease = hold_with(cache, ids(4, 1))
    assert cache.announce(lease, pack(ids(12, 1)[4:]), take(cache, 2))
    assert lease.payload() == payload_of(ids(4, 1)) + missing(8)
    assert_sound(cache, [lease])
    cache.withdraw(lease)
    assert lease.payload() == payload_of(ids(4, 1))
    assert cache.announce(lease, pack(ids(12, 1)[4:]), take(cache, 2))
    cache.commit(lease)
    publish(cache, lease, ids(16, 1), payload_of(ids(16, 1)))
    assert lease.payload() == (
        payload_of(ids(4, 1)) + missing(8) + payload_of(ids(16, 1))[4 * 12 :]
    )
    assert_sound(cache, [lease])


def test_a_publish_that_ends_before_blocks_in_flight_keeps_only_its_own_part() -> None:
    cache = make_cache(16, SIZE)
    owner = hold(cache, ids(4, 1))
    assert cache.announce(owner, pack(ids(12, 1)[4:]), take(cache, 2))
    late = lease_nothing(cache)
    blocks = take(cache, 3)
    assert len(cache.publish(late, pack(ids(12, 1)), blocks, payload_of(ids(12, 1)))) == 1
    assert late.payload() == payload_of(ids(4, 1))
    assert owner.payload() == payload_of(ids(4, 1)) + missing(8)
    assert_sound(cache, [owner, late], [blocks[1:]])


@pytest.mark.parametrize("values", [7, 9, 1])
def test_a_payload_that_does_not_fit_its_tokens_is_refused(values: int) -> None:
    cache = make_cache(8, SIZE)
    lease = lease_of(cache, ids(9, 1))
    blocks = take(cache, 2)
    with pytest.raises(ValueError, match=f"{4 * values} bytes of payload for 8 tokens"):
        cache.publish(lease, pack(ids(8, 1)), blocks, payload_of(ids(values, 1)))
    assert_sound(cache, [lease], [blocks])
    assert list(cache.publish(lease, b"", token_array())) == []


def test_runs_that_crossed_a_public_path_keep_their_payload_in_both_parts() -> None:
    cache = make_cache(8, SIZE)
    cache.mark_public(pack(ids(8, 1)))
    lease = cache.lease(cache.match(pack(ids(17, 1)), Namespace(tenant="one")))
    publish(cache, lease, ids(16, 1), payload_of(ids(16, 1)))
    assert lease.payload() == payload_of(ids(16, 1))
    other = cache.lease(cache.match(pack(ids(17, 1)), Namespace(tenant="other")))
    assert other.payload() == payload_of(ids(8, 1))
    assert_sound(cache, [lease, other])


@pytest.mark.parametrize("chunks", [[8, 16], [4, 8, 16]])
def test_values_that_come_later_fill_what_was_missing_and_change_nothing_else(
    chunks: list[int],
) -> None:
    """The first request gave a payload with its last chunk alone."""
    cache = make_cache(16, SIZE)
    run = ids(16, 1)
    first = lease_nothing(cache)
    for end in chunks:
        given = payload_of(run) if end == 16 else b""
        publish(cache, first, run[:end], given)
    assert first.payload() == missing(chunks[-2]) + payload_of(run)[4 * chunks[-2] :]
    second = lease_nothing(cache)
    other = payload_of(run, 7)
    publish(cache, second, run[:8], other)
    assert first.payload() == other[: 4 * 8] + payload_of(run)[4 * 8 :]
    third = lease_nothing(cache)
    publish(cache, third, run, payload_of(run, 9))
    assert third.payload() == other[: 4 * 8] + payload_of(run)[4 * 8 :]
    assert_sound(cache, [first, second, third])
    publish(cache, third, [*run, *ids(4, 2)], payload_of([*run, *ids(4, 2)]))
    assert third.payload()[4 * 16 :] == payload_of(ids(4, 2), 16)


def test_bytes_that_only_look_like_a_missing_value_across_two_tokens_stay() -> None:
    cache = make_cache(8, SIZE)
    given = b"\x01\x02\xff\xff" + b"\xff\xff\x03\x04" + bytes(8)
    for payload in (given, bytes(16)):
        lease = lease_nothing(cache)
        publish(cache, lease, ids(4, 1), payload)
        assert lease.payload() == given
        cache.release(lease)


def test_what_is_not_stored_before_a_block_in_quarantine_has_no_payload_either() -> None:
    cache = make_cache(8, SIZE)
    lease, blocks = hold_with(cache, ids(4, 1)), take(cache, 3)
    cache.quarantine([blocks, blocks[1:2]])
    payload = payload_of(ids(16, 1))
    assert len(cache.publish(lease, pack(ids(16, 1)[4:]), blocks, payload[16:])) == 1
    assert lease.node.payload == payload[:32]
