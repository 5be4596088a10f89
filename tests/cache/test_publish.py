from __future__ import annotations

import pytest

from radix_engine.cache import OwnershipError, pack, token_array
from tests.cache.trees import (
    assert_sound,
    covered,
    edges,
    hold,
    ids,
    lease_nothing,
    lease_of,
    make_cache,
    publish,
    store,
    stored,
    take,
)


def test_what_is_published_is_found_with_its_blocks() -> None:
    cache = make_cache(8, 4)
    lease = lease_of(cache, ids(13, 1))
    blocks = take(cache, 3)
    assert list(cache.publish(lease, pack(ids(12, 1)), blocks)) == list(blocks)
    assert lease.num_tokens == 12
    assert list(lease.blocks()) == list(blocks)
    reader = lease_of(cache, ids(13, 1))
    assert list(reader.blocks()) == list(blocks)
    assert_sound(cache, [lease, reader])


@pytest.mark.parametrize("size", [1, 4, 16])
def test_prompts_part_at_the_last_common_block_boundary(size: int) -> None:
    cache = make_cache(100, size)
    trunk, left, right = ids(2 * size, 1), ids(3 * size, 2), ids(size, 3)
    store(cache, [*trunk, *left])
    store(cache, [*trunk, *right])
    assert edges(cache) == sorted([trunk, left, right])
    assert stored(cache, [*trunk, *left]) == 5 * size
    assert stored(cache, [*trunk, *right]) == 3 * size
    assert cache.pool.tree_blocks == 6
    assert_sound(cache)


def test_prompts_that_part_inside_a_block_share_none_of_it() -> None:
    cache = make_cache(16, 4)
    store(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    store(cache, [1, 2, 3, 4, 5, 6, 9, 9])
    assert edges(cache) == [[1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 9, 9]]
    assert_sound(cache)


def test_publishing_in_chunks_gives_the_tree_of_publishing_at_once() -> None:
    whole, chunked = make_cache(16, 4), make_cache(16, 4)
    prompt = ids(24, 1)
    store(whole, prompt)
    lease = lease_of(chunked, prompt)
    for end in (4, 12, 16, 24):
        publish(chunked, lease, prompt[:end])
        assert lease.num_tokens == end
        assert_sound(chunked, [lease])
    chunked.release(lease)
    assert edges(chunked) == edges(whole) == [prompt]


def test_a_node_does_not_grow_under_another_lease() -> None:
    cache = make_cache(16, 4)
    first = hold(cache, ids(8, 1))
    second = lease_of(cache, ids(9, 1))
    blocks = list(second.blocks())
    assert len(blocks) == 2
    publish(cache, first, ids(16, 1))
    assert list(second.blocks()) == blocks
    assert second.num_tokens == 8
    assert first.num_tokens == 16
    assert edges(cache) == sorted([ids(8, 1), ids(16, 1)[8:]])
    assert_sound(cache, [first, second])
    cache.release(first)
    assert cache.evict(16) == 2, "the second lease pins the first two blocks, and only those"
    assert list(second.blocks()) == blocks
    assert_sound(cache, [second])


def test_a_node_does_not_grow_past_its_children() -> None:
    cache = make_cache(16, 4)
    store(cache, [*ids(8, 1), *ids(4, 2)])
    lease = lease_of(cache, ids(9, 1))
    publish(cache, lease, ids(12, 1))
    assert stored(cache, [*ids(8, 1), *ids(4, 2)]) == 12
    assert stored(cache, ids(12, 1)) == 12
    assert_sound(cache, [lease])


def test_publishing_the_same_tokens_again_keeps_the_tree_and_frees_the_duplicates() -> None:
    cache = make_cache(16, 4)
    prompt = ids(12, 1)
    first = list(store(cache, prompt))
    for repeat in range(1, 4):
        lease = lease_nothing(cache)
        duplicates = take(cache, 3)
        assert list(cache.publish(lease, pack(prompt), duplicates)) == first
        assert cache.counters.duplicate_blocks == 3 * repeat
        assert cache.pool.free_blocks == 13
        assert lease.num_tokens == 12
        assert_sound(cache, [lease])
        cache.release(lease)
    assert edges(cache) == [prompt]


def test_the_second_of_two_that_computed_the_same_reads_the_blocks_of_the_first() -> None:
    cache = make_cache(6, 4)
    prompt = ids(12, 1)
    one, two = lease_of(cache, prompt), lease_of(cache, prompt)
    table_one, table_two = take(cache, 3), take(cache, 3)
    assert cache.pool.free_blocks == 0
    for chunk in range(3):  # both publish block after block, in turns
        run = pack(prompt[4 * chunk : 4 * chunk + 4])
        part = slice(chunk, chunk + 1)
        table_one[part] = cache.publish(one, run, table_one[part])
        table_two[part] = cache.publish(two, run, table_two[part])
        assert table_two[part] == table_one[part]
        assert_sound(cache, [one, two], [table_one[chunk + 1 :], table_two[chunk + 1 :]])
    reused = take(cache, 3)
    assert not set(reused) & set(table_two)
    assert list(two.blocks()) == list(one.blocks()) == list(table_one)
    assert_sound(cache, [one, two], [reused])


def test_the_blocks_of_both_are_kept_where_the_second_goes_further() -> None:
    cache = make_cache(16, 4)
    one = hold(cache, ids(8, 1))
    two = lease_nothing(cache)
    blocks = take(cache, 5)
    table = cache.publish(two, pack(ids(20, 1)), blocks)
    assert list(table) == [*one.blocks(), *blocks[2:]]
    assert list(two.blocks()) == list(table)
    assert cache.counters.duplicate_blocks == 2
    assert_sound(cache, [one, two])


def test_a_duplicate_that_ends_inside_a_node_splits_it() -> None:
    cache = make_cache(16, 4)
    first = store(cache, ids(16, 1))
    lease = lease_nothing(cache)
    table = cache.publish(lease, pack(ids(8, 1)), take(cache, 2))
    assert list(table) == list(first[:2])
    assert cache.evictable_blocks == 2
    assert_sound(cache, [lease])
    assert cache.evict(16) == 2
    assert stored(cache, ids(16, 1)) == 8
    assert_sound(cache, [lease])


def test_publishing_nothing_changes_nothing() -> None:
    cache = make_cache(4, 4)
    lease = lease_of(cache, ids(5, 1))
    version = cache.version
    assert list(cache.publish(lease, b"", token_array())) == []
    assert cache.version == version
    assert edges(cache) == []


@pytest.mark.parametrize("tokens", [3, 5, 8])
def test_tokens_that_do_not_fill_their_blocks_are_refused(tokens: int) -> None:
    cache = make_cache(4, 4)
    lease = lease_of(cache, ids(9, 1))
    blocks = take(cache, 1)
    with pytest.raises(ValueError, match="do not fill 1 blocks of 4"):
        cache.publish(lease, pack(ids(tokens, 1)), blocks)
    assert_sound(cache, [lease], [blocks])


def test_a_released_lease_publishes_nothing() -> None:
    cache = make_cache(4, 4)
    lease = lease_of(cache, ids(5, 1))
    cache.release(lease)
    blocks = take(cache, 1)
    with pytest.raises(OwnershipError, match="released"):
        cache.publish(lease, pack(ids(4, 1)), blocks)
    assert_sound(cache, [], [blocks])


def test_blocks_that_the_tree_owns_are_not_published_under_a_second_key() -> None:
    cache = make_cache(8, 4)
    taken = store(cache, ids(8, 1))
    lease = lease_of(cache, ids(9, 2))
    with pytest.raises(OwnershipError, match="belongs to the tree"):
        cache.publish(lease, pack(ids(8, 2)), taken)
    assert covered(cache, ids(9, 2)) == 0
    assert_sound(cache, [lease])


@pytest.mark.parametrize("prompt", [ids(8, 1), [*ids(4, 1), *ids(8, 2)], ids(16, 1)])
def test_a_refused_publish_changes_neither_pins_nor_shape_nor_owners(prompt: list[int]) -> None:
    cache = make_cache(8, 4)
    taken = store(cache, ids(12, 1))
    lease = lease_nothing(cache)
    mine = take(cache, len(prompt) // 4)
    match = cache.match(pack(ids(13, 1)))
    for wrong in range(len(mine)):  # one block of all is the tree's, each in turn
        blocks = mine[:]
        blocks[wrong] = taken[0]
        with pytest.raises(OwnershipError):
            cache.publish(lease, pack(prompt), blocks)
        assert lease.num_tokens == 0
        assert edges(cache) == [ids(12, 1)]
        assert_sound(cache, [lease], [mine])
    assert list(cache.lease(match).blocks()) == list(taken), "a match made before is still good"


def test_one_block_given_twice_is_refused() -> None:
    cache = make_cache(8, 4)
    lease = lease_of(cache, ids(9, 1))
    block = take(cache, 1)
    with pytest.raises(OwnershipError):
        cache.publish(lease, pack(ids(8, 1)), block + block)
    assert_sound(cache, [lease], [block])
