from __future__ import annotations

import pytest

from radix_engine.cache import BlockPool, OwnershipError, token_array
from radix_engine.cache.block_pool import FREE, PRIVATE, TREE


def state(pool: BlockPool) -> tuple[list[int], list[int], tuple[int, int, int]]:
    owners = [pool.owner_of(block) for block in range(pool.num_blocks)]
    counts = (pool.free_blocks, pool.private_blocks, pool.tree_blocks)
    return owners, pool.free_list().tolist(), counts


@pytest.fixture
def pool() -> BlockPool:
    """Blocks 0 and 1 are in the tree, 2 and 3 private, 4 and 5 free."""
    pool = BlockPool(6)
    blocks = pool.allocate(4)
    assert sorted(blocks) == [0, 1, 2, 3]
    pool.publish(token_array([0, 1]))
    return pool


def test_a_pool_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 block"):
        BlockPool(0)


def test_all_blocks_are_free_at_first_and_each_is_handed_out_once() -> None:
    pool = BlockPool(5)
    assert pool.free_blocks == 5
    assert sorted(pool.allocate(3) + pool.allocate(2)) == [0, 1, 2, 3, 4]
    assert state(pool)[2] == (0, 5, 0)


def test_allocating_nothing_takes_nothing() -> None:
    pool = BlockPool(2)
    assert list(pool.allocate(0)) == []
    assert pool.free_blocks == 2


def test_more_than_is_free_is_refused_without_change(pool: BlockPool) -> None:
    before = state(pool)
    with pytest.raises(OwnershipError, match="3 blocks asked for, 2 are free"):
        pool.allocate(3)
    assert state(pool) == before


def test_a_block_goes_from_free_to_private_to_the_tree_and_back() -> None:
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    assert pool.owner_of(0) == PRIVATE
    pool.publish(blocks)
    assert pool.owner_of(0) == TREE
    pool.free_from_tree(blocks)
    assert pool.owner_of(0) == FREE
    pool.free_private(pool.allocate(1))
    assert state(pool) == ([FREE], [0], (1, 0, 0))


@pytest.mark.parametrize("wrong", [[2, 0], [2, 4], [3, 3], [0], [4]])
def test_blocks_that_are_not_all_private_are_neither_published_nor_freed(
    pool: BlockPool, wrong: list[int]
) -> None:
    before = state(pool)
    with pytest.raises(OwnershipError):
        pool.publish(token_array(wrong))
    with pytest.raises(OwnershipError):
        pool.free_private(token_array(wrong))
    assert state(pool) == before


@pytest.mark.parametrize("wrong", [[0, 2], [1, 5], [1, 1], [3]])
def test_the_tree_frees_only_its_own_blocks(pool: BlockPool, wrong: list[int]) -> None:
    before = state(pool)
    with pytest.raises(OwnershipError):
        pool.free_from_tree(token_array(wrong))
    assert state(pool) == before


def test_a_refusal_names_the_block_and_its_owner(pool: BlockPool) -> None:
    with pytest.raises(OwnershipError, match="block 1 belongs to the tree, not to a request"):
        pool.free_private(token_array([2, 1]))
