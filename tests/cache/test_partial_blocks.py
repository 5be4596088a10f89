"""Matches that end at the exact token: rows of a stored block that a requester copies."""

from __future__ import annotations

import pytest

from radix_engine.cache import (
    PrefixCache,
    Reason,
    pack,
)
from radix_engine.cache.block_pool import TREE
from tests.cache.partial import asked, parting, rows
from tests.cache.requests import why
from tests.cache.trees import assert_sound, edges, ids, lease_of, store, take


@pytest.mark.parametrize("size", [1, 4, 16])
def test_a_match_covers_the_common_tokens_and_never_the_last_one(size: int) -> None:
    cache = PrefixCache(80, size)
    prompt = ids(5 * size, 1)
    blocks = store(cache, prompt)
    for length in range(1, 5 * size + 1):
        for shared in {0, 1, length // 2, length - 1, length}:
            covered = min(shared, length - 1)
            source = blocks[covered // size] if covered % size else -1
            expected = covered, covered % size, source
            assert rows(cache, parting(prompt, shared, length)) == expected


def test_of_31_common_tokens_all_are_served_or_16_without_partial_blocks() -> None:
    one, two = ids(48, 1), parting(ids(48, 1), 31, 48)
    for partial_blocks, expected in ((True, (31, 15)), (False, (16, 0))):
        cache = PrefixCache(16, 16, partial_blocks=partial_blocks)
        blocks = store(cache, one)
        covered, copied, source = rows(cache, two)
        assert (covered, copied) == expected
        assert source == (blocks[1] if copied else -1)
        store(cache, two)
        assert rows(cache, [*one, 0])[0] == 48
        assert rows(cache, [*two, 0])[0] == 48
        assert_sound(cache)


def test_a_shared_prefix_shorter_than_a_block_is_served_or_said_to_be_too_short() -> None:
    one, two = ids(32, 1), parting(ids(32, 1), 15, 32)
    partly, wholly = PrefixCache(8, 16), PrefixCache(8, 16, partial_blocks=False)
    source = store(partly, one)[0]
    store(wholly, one)
    assert rows(partly, two) == (15, 15, source)
    assert rows(wholly, two) == (0, 0, -1)
    end = why(wholly, two)
    assert (end.reason, end.position) == (Reason.SHORT, 15)


@pytest.mark.parametrize("partial_blocks", [True, False])
def test_without_the_flag_nothing_is_ever_copied(partial_blocks: bool) -> None:
    cache = PrefixCache(32, 4, partial_blocks=partial_blocks)
    store(cache, ids(16, 1))
    store(cache, parting(ids(16, 1), 8, 16))
    copied = {
        rows(cache, parting(ids(16, 1), at, length))[1]
        for length in range(1, 17)
        for at in range(length + 1)
    }
    assert copied == ({0, 1, 2, 3} if partial_blocks else {0})


def test_a_lease_pins_whole_blocks_and_leaves_the_copied_rows_to_the_requester() -> None:
    cache = PrefixCache(8, 4)
    blocks = store(cache, ids(12, 1))
    match = asked(cache, parting(ids(12, 1), 6, 12))
    assert (match.num_tokens, match.copy_rows, match.copy_source) == (6, 2, blocks[1])
    assert cache.unpinned_blocks(match) == 1
    lease = cache.lease(match)
    assert lease.num_tokens == 4
    assert list(lease.blocks()) == [blocks[0]]
    assert cache.evictable_blocks == 2
    assert_sound(cache, [lease])


def test_the_source_stays_as_it_was_when_the_requester_stores_its_own_block() -> None:
    cache = PrefixCache(8, 4)
    source = store(cache, ids(8, 1))[1]
    other = parting(ids(8, 1), 6, 8)
    lease = lease_of(cache, [*other, 0])
    own = cache.publish(lease, pack(other[4:]), take(cache, 1))
    assert source not in own
    assert cache.pool.owner_of(source) == TREE
    assert edges(cache) == sorted([ids(4, 1), ids(8, 1)[4:], other[4:]])
    assert rows(cache, [*ids(7, 1), 0])[2] == source
    assert_sound(cache, [lease])


def test_rows_are_copied_out_of_the_block_after_the_match_wherever_it_is() -> None:
    cache = PrefixCache(16, 4)
    trunk, left, right = ids(8, 1), [9, 9, 1, 1], [9, 9, 2, 2, 5, 5, 5, 5]
    one = store(cache, [*trunk, *left])
    other = store(cache, [*trunk, *right])
    inside, fork_left, fork_right = one[1], one[2], other[2]
    assert rows(cache, [*trunk[:7], 0, 0]) == (7, 3, inside)
    assert rows(cache, [*trunk, 9, 9, 1, 0, 0]) == (11, 3, fork_left)
    assert rows(cache, [*trunk, 9, 9, 2, 0, 0]) == (11, 3, fork_right)
    assert rows(cache, [*trunk, 9, 0]) in [(9, 1, fork_left), (9, 1, fork_right)]
    assert rows(cache, [*trunk, *right[:5], 0]) == (13, 1, other[3])
    assert rows(cache, [*trunk, 0, 0]) == (8, 0, -1)


@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
def test_of_a_prompt_that_is_wholly_cached_all_but_the_last_token_is_served_each_time(
    size: int, blocks: int
) -> None:
    cache = PrefixCache(80, size)
    prompt = ids(blocks * size, 1)
    first = store(cache, prompt)
    for _ in range(3):
        match = asked(cache, prompt)
        assert match.num_tokens == len(prompt) - 1
        assert match.copy_source == (first[-1] if size > 1 else -1)
        lease = cache.lease(match)
        again = cache.publish(lease, pack(prompt[lease.num_tokens :]), take(cache, 1))
        assert list(again) == list(first[-1:]), "the last block is computed again, not stored again"
        cache.release(lease)
        assert cache.pool.tree_blocks == blocks
        assert_sound(cache)


@pytest.mark.parametrize("shared", range(5))
def test_the_last_token_is_not_copied_either(shared: int) -> None:
    cache = PrefixCache(16, 4)
    blocks = store(cache, ids(12, 1))
    prompt = ids(4 + shared, 1)
    source = blocks[1] if shared > 1 else -1
    expected = (3, 3, blocks[0]) if shared == 0 else (3 + shared, shared - 1, source)
    assert rows(cache, prompt) == expected


def test_a_prompt_of_one_token_is_served_nothing() -> None:
    cache = PrefixCache(16, 4)
    store(cache, ids(12, 1))
    assert rows(cache, ids(1, 1)) == (0, 0, -1)
    assert rows(cache, []) == (0, 0, -1)


def test_the_last_token_of_an_answer_was_never_computed_and_is_not_served() -> None:
    for size, partial_blocks, expected in ((1, True, 14), (4, True, 12), (4, False, 12)):
        cache = PrefixCache(32, size, partial_blocks=partial_blocks)
        prompt, answer = ids(10, 1), ids(5, 2)
        lease = lease_of(cache, prompt)
        computed = [*prompt, *answer[:-1]]  # the last token of an answer is never computed
        full = len(computed) // size * size
        cache.publish(lease, pack(computed[:full]), take(cache, full // size))
        cache.release(lease)
        assert rows(cache, [*prompt, *answer, *ids(3, 3)])[0] == expected
        assert_sound(cache)
