from __future__ import annotations

import hashlib

import pytest

from radix_engine.cache import ALL, DEFAULT, StaleMatch, dump, pack
from tests.cache.trees import (
    assert_sound,
    covered,
    edges,
    hold,
    ids,
    lease_of,
    make_cache,
    publish,
    store,
    stored,
    take,
)

SIZES = [1, 4, 16]


@pytest.mark.parametrize("size", SIZES)
def test_a_match_covers_the_common_whole_blocks_and_never_the_last_token(size: int) -> None:
    cache = make_cache(80, size)
    prompt = ids(5 * size, 1)
    store(cache, prompt)
    other = [token + 1 for token in prompt]
    for length in range(1, 5 * size + 1):
        for common in {0, 1, length // 2, length - 1, length}:
            asked = [*prompt[:common], *other[common:length]]
            assert covered(cache, asked) == min(common, length - 1) // size * size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
def test_a_prompt_that_is_wholly_cached_leaves_its_last_token_to_compute(
    size: int, blocks: int
) -> None:
    cache = make_cache(80, size)
    prompt = ids(blocks * size, 1)
    first = store(cache, prompt)
    for _ in range(3):
        lease = lease_of(cache, prompt)
        assert lease.num_tokens == blocks * size - size
        again = publish(cache, lease, prompt)
        assert list(again) == list(first[-1:]), "the last block is computed again, not stored again"
        cache.release(lease)
        assert stored(cache, prompt) == blocks * size
        assert cache.pool.tree_blocks == blocks
        assert_sound(cache)


def test_a_prompt_shorter_than_a_block_matches_nothing_and_adds_no_node() -> None:
    cache = make_cache(4, 64)
    store(cache, ids(64, 1))
    version = cache.version
    assert covered(cache, ids(63, 1)) == 0
    lease = lease_of(cache, ids(63, 1))
    assert lease.num_tokens == 0
    assert len(lease.blocks()) == 0
    cache.release(lease)
    assert len(edges(cache)) == 1
    assert cache.version == version
    assert_sound(cache)


def test_looking_up_changes_nothing() -> None:
    cache = make_cache(16, 4, clock=lambda: 5.0)
    store(cache, ids(16, 1))
    store(cache, [*ids(8, 1), *ids(8, 2)])
    before = dump(cache, 5.0), cache.version, cache.evictable_blocks
    for length in range(17):
        match = cache.match(pack(ids(length, 1)))
        cache.unpinned_blocks(match)
    assert (dump(cache, 5.0), cache.version, cache.evictable_blocks) == before


def test_an_empty_run_matches_nothing() -> None:
    cache = make_cache(4, 1)
    store(cache, [1, 2])
    assert cache.match(b"").num_tokens == 0


def test_a_thousand_misses_leave_the_empty_tree_as_it_was() -> None:
    cache = make_cache(4, 4)
    root = cache.root
    for seed in range(1000):
        cache.release(lease_of(cache, ids(9, seed)))
    assert cache.root is root
    assert root.pins == 0
    assert root.children == {}
    assert cache.evict(4) == 0
    assert cache.root is root
    assert_sound(cache)


def test_tokens_are_compared_and_not_their_hashes() -> None:
    class Colliding(bytes):
        """A run whose hash is that of every other one."""

        def __hash__(self) -> int:
            return 0

        def __getitem__(self, part: slice) -> Colliding:  # type: ignore[override]
            return Colliding(super().__getitem__(part))

    cache = make_cache(32, 4)

    def keep(tokens: list[int]) -> None:
        lease = cache.lease(cache.match(Colliding(pack(tokens))))
        cache.publish(lease, Colliding(pack(tokens)), take(cache, len(tokens) // 4))
        cache.release(lease)

    for seed in range(8):
        asked = Colliding(pack(ids(9, seed)))
        assert cache.match(asked).num_tokens == 0
        keep(ids(8, seed))
        assert cache.match(asked).num_tokens == 8
    children = cache.root.children[DEFAULT.key].children
    assert {hash(key) for key in children} == {0}
    assert len(children) == 8
    assert_sound(cache)


def test_prompts_that_differ_in_one_token_of_a_block_share_only_what_is_before_it() -> None:
    cache = make_cache(16, 4)
    store(cache, ids(12, 1))
    for position in range(12):
        asked = ids(13, 1)
        asked[position] += 1
        assert covered(cache, asked) == position // 4 * 4


def test_a_match_is_refused_once_the_tree_has_changed() -> None:
    cache = make_cache(8, 4)
    store(cache, ids(16, 1))
    prompt = pack(ids(17, 1))

    match = cache.match(prompt)
    store(cache, ids(4, 2))  # published
    with pytest.raises(StaleMatch):
        cache.lease(match)

    match = cache.match(prompt)
    cache.evict(1)
    with pytest.raises(StaleMatch):
        cache.lease(match)

    match = cache.match(prompt)
    cache.release(lease_of(cache, ids(9, 1)))  # split
    with pytest.raises(StaleMatch):
        cache.lease(match)

    match = cache.match(prompt)
    cache.flush()
    with pytest.raises(StaleMatch):
        cache.lease(match)
    assert_sound(cache)


def test_a_stale_match_pins_nothing() -> None:
    cache = make_cache(8, 4)
    store(cache, ids(16, 1))
    match = cache.match(pack(ids(17, 1)))
    cache.evict(1)
    with pytest.raises(StaleMatch):
        cache.lease(match)
    assert cache.evictable_blocks == 3
    assert_sound(cache)


def test_a_match_stays_good_while_the_tree_only_gets_used() -> None:
    cache = make_cache(8, 4)
    store(cache, ids(16, 1))
    match = cache.match(pack(ids(17, 1)))
    other = lease_of(cache, ids(17, 1))
    cache.release(other)
    lease = cache.lease(match)
    assert lease.num_tokens == 16
    assert_sound(cache, [lease])


def test_unpinned_blocks_are_what_a_lease_takes_from_the_evictable_ones() -> None:
    cache = make_cache(32, 4)
    store(cache, ids(32, 1))
    store(cache, [*ids(16, 1), *ids(8, 2)])
    held = hold(cache, ids(8, 1))
    for tokens in (ids(1, 1), ids(9, 1), ids(21, 1), ids(33, 1), [*ids(16, 1), *ids(9, 2)]):
        match = cache.match(pack(tokens))
        expected, before = cache.unpinned_blocks(match), cache.evictable_blocks
        lease = cache.lease(match)
        assert before - cache.evictable_blocks == expected
        assert_sound(cache, [held, lease])
        cache.release(lease)
        assert cache.evictable_blocks == before


def test_the_tree_compares_tokens_and_not_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were every block's hash the same, another prompt would still find nothing of this one."""
    monkeypatch.setattr("radix_engine.cache.block_hash.sha256", lambda *_: hashlib.sha256(b""))
    cache = make_cache(32, 4, events=True)
    events = cache.subscribe(ALL)
    before = events.next_sequence
    store(cache, ids(8, 1))
    assert events.next_sequence > before  # what was told carries the hashes
    assert covered(cache, [*ids(8, 1), 1]) == 8
    assert covered(cache, [*ids(8, 2), 1]) == 0
