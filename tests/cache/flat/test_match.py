"""What the flat index finds of a prompt, and what it says about it."""

from __future__ import annotations

import pytest

from radix_engine.cache.flat import FlatCache, FlatLease, FlatMatch, flat_reads
from radix_engine.cache.flat.block_key import HashName
from radix_engine.cache.interface import PrefixIndex, StaleMatch
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.reason import MatchEnd, Reason
from radix_engine.cache.token_run import pack
from tests.cache.flat.use import (
    announce,
    assert_sound,
    hold,
    ids,
    lease_of,
    rest,
    store,
    stored,
    take,
)


def test_it_is_a_prefix_index() -> None:
    index: PrefixIndex[FlatMatch, FlatLease] = FlatCache(4)
    assert index.available_blocks == 4


def test_an_empty_index_covers_nothing() -> None:
    match = FlatCache(8).match(pack(ids(50)))
    assert match.num_tokens == 0
    assert list(match.blocks) == []


@pytest.mark.parametrize("name", ["sha256", "xxh3_128"])
def test_a_stored_prompt_is_found_up_to_its_last_full_block(name: HashName) -> None:
    cache = FlatCache(8, hash_name=name)
    blocks = store(cache, ids(50))
    match = cache.match(pack(ids(50)))
    assert match.num_tokens == 48
    assert match.blocks == blocks
    assert len(blocks) == 3


@pytest.mark.parametrize(
    ("prompt", "covered"), [(0, 0), (1, 0), (16, 0), (17, 16), (32, 16), (33, 32), (48, 32)]
)
def test_the_last_prompt_token_is_never_covered(prompt: int, covered: int) -> None:
    cache = FlatCache(8)
    store(cache, ids(48))
    assert cache.match(pack(ids(prompt))).num_tokens == covered


def test_a_match_ends_at_the_block_before_the_first_other_token() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    assert cache.match(pack([*ids(47), 9, *ids(30, 1)])).num_tokens == 32


def test_nothing_is_ever_copied_from_a_block_of_others() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    match = cache.match(pack([*ids(40), *ids(30, 1)]))
    assert (match.num_tokens, match.copy_rows, match.copy_source) == (32, 0, -1)


def test_what_follows_a_missing_block_is_not_found() -> None:
    cache = FlatCache(8)
    cache._order_of_leaving = lambda held: held  # type: ignore[method-assign]
    store(cache, ids(64))
    cache.evict(1)  # the head
    assert len(cache.stored.index) == 3
    assert stored(cache, ids(64)) == 0


def test_namespaces_do_not_find_each_other() -> None:
    cache = FlatCache(16)
    mine, yours = Namespace(tenant="a"), Namespace(tenant="b")
    blocks = store(cache, ids(64), mine)
    assert cache.match(pack(ids(65)), mine).blocks == blocks
    assert stored(cache, ids(64), yours) == 0
    assert stored(cache, ids(64)) == 0
    assert not set(store(cache, ids(64), yours)) & set(blocks)


def test_a_bypassing_request_finds_nothing() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    match = cache.match(pack(ids(65)), mode=CacheMode.BYPASS)
    assert match.num_tokens == 0
    assert cache.account(match, pack(ids(65))) == MatchEnd(Reason.BYPASSED, 0)


def test_a_read_only_request_finds_what_is_stored() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    assert cache.match(pack(ids(65)), mode=CacheMode.READ_ONLY).num_tokens == 64


def test_a_match_is_full_when_every_block_that_may_hit_did() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    for prompt, end in [
        (ids(64), MatchEnd(Reason.FULL, 48)),
        (ids(70), MatchEnd(Reason.FULL, 64)),
        (ids(16), MatchEnd(Reason.UNKNOWN, 0)),
        ([], MatchEnd(Reason.UNKNOWN, 0)),
        (ids(81), MatchEnd(Reason.UNKNOWN, 64)),
        (ids(64, 1), MatchEnd(Reason.UNKNOWN, 0)),
    ]:
        assert cache.account(cache.match(pack(prompt)), pack(prompt)) == end


def test_looking_up_changes_nothing() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    version, order = cache.version, list(cache.stored.queue)
    cache.match(pack(ids(65)))
    assert (cache.version, list(cache.stored.queue)) == (version, order)


def test_a_lease_on_a_changed_index_is_refused() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    match = cache.match(pack(ids(65)))
    cache.evict(1)
    with pytest.raises(StaleMatch):
        cache.lease(match)
    assert_sound(cache)


def test_leases_and_releases_keep_matches_good() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    match = cache.match(pack(ids(65)))
    first = cache.lease(match)
    second = cache.lease(match)
    cache.release(first)
    assert cache.lease(match).blocks() == second.blocks()


def test_new_blocks_make_old_matches_stale() -> None:
    cache = FlatCache(8)
    match = cache.match(pack(ids(65)))
    hold(cache, ids(64))
    with pytest.raises(StaleMatch):
        cache.lease(match)


def test_a_withdrawal_makes_matches_stale() -> None:
    cache = FlatCache(8)
    owner = announce(cache, ids(64))
    match = cache.match(pack(ids(65)))
    cache.withdraw(owner)
    with pytest.raises(StaleMatch):
        cache.lease(match)


def test_a_flush_makes_matches_stale() -> None:
    cache = FlatCache(8)
    hold(cache, ids(64))
    match = cache.match(pack(ids(65)))
    cache.flush()
    with pytest.raises(StaleMatch):
        cache.lease(match)


def test_unpinned_blocks_are_those_that_leave_the_evictable_ones() -> None:
    cache = FlatCache(8)
    store(cache, ids(64))
    match = cache.match(pack(ids(65)))
    assert cache.unpinned_blocks(match) == 4
    lease_of(cache, ids(33))
    assert cache.unpinned_blocks(match) == 2
    evictable = cache.evictable_blocks
    cache.lease(match)
    assert evictable - cache.evictable_blocks == 2
    assert cache.unpinned_blocks(match) == 0


def test_a_lease_goes_on_where_its_match_ended() -> None:
    cache = FlatCache(8)
    store(cache, ids(32))
    lease = lease_of(cache, ids(64))
    cache.publish(lease, *rest(cache, lease, ids(64)))
    assert lease.num_tokens == 64
    assert stored(cache, ids(64)) == 64
    assert cache.match(pack(ids(65))).blocks == lease.blocks()


def test_a_collision_serves_anothers_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documented: keys are compared, not tokens. Only the hash stands between two prompts."""
    monkeypatch.setattr(flat_reads, "digest_function", lambda name: lambda data: b"same")
    cache = FlatCache(8)
    blocks = store(cache, ids(16))
    match = cache.match(pack(ids(17, 1)))
    assert match.num_tokens == 16
    assert match.blocks == blocks
    assert stored(cache, ids(16), Namespace(tenant="b")) == 16
    assert_sound(cache)


def test_the_books_stay_right_under_collisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_reads, "digest_function", lambda name: lambda data: b"same")
    cache = FlatCache(8)
    lease = lease_of(cache, ids(64))
    table = cache.publish(lease, *rest(cache, lease, ids(64)))
    assert len(set(table)) == 1
    assert cache.counters.duplicate_blocks == 3
    second = lease_of(cache, ids(50, 1))
    assert_sound(cache, [lease, second])
    cache.release(second)
    cache.release(lease)
    assert_sound(cache)
    assert (cache.evictable_blocks, cache.available_blocks) == (1, 8)


@pytest.mark.parametrize("size", [0, -1])
def test_a_block_holds_at_least_one_token(size: int) -> None:
    with pytest.raises(ValueError, match="block_size must be at least 1 token"):
        FlatCache(4, size)


def test_blocks_of_one_token_hit_all_but_the_last() -> None:
    cache = FlatCache(8, 1)
    store(cache, [5, 6, 7])
    assert cache.match(pack([5, 6, 7])).num_tokens == 2
    assert len(take(cache, 5)) == 5
