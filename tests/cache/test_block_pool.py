from __future__ import annotations

import pytest

from radix_engine.cache import BlockPool, OwnershipError, token_array
from radix_engine.cache.block_pool import FREE, IN_FLIGHT, PRIVATE, QUARANTINED, TREE


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


def test_a_block_is_announced_then_committed_or_withdrawn() -> None:
    pool = BlockPool(2)
    pool.announce(pool.allocate(2))
    assert [pool.owner_of(block) for block in range(2)] == [IN_FLIGHT, IN_FLIGHT]
    assert (pool.in_flight_blocks, pool.tree_blocks, pool.private_blocks) == (2, 0, 0)
    pool.commit(token_array([0]))
    pool.withdraw(token_array([1]))
    assert [pool.owner_of(block) for block in range(2)] == [TREE, FREE]
    assert (pool.in_flight_blocks, pool.tree_blocks, pool.free_blocks) == (0, 1, 1)
    assert list(pool.free_list()) == [1]


@pytest.fixture(params=[1, 60])
def parted(request: pytest.FixtureRequest) -> tuple[BlockPool, int]:
    """A pool of so many blocks of each owner, in this order: tree, private, in flight, free.

    So many that numpy handles them, too.
    """
    each: int = request.param
    pool = BlockPool(4 * each)
    blocks = token_array(sorted(pool.allocate(3 * each)))
    pool.publish(blocks[:each])
    pool.announce(blocks[2 * each :])
    return pool, each


@pytest.mark.parametrize("owner", ["tree", "private", "in flight", "free", "none"])
def test_whoever_hands_blocks_on_must_own_all_of_them(
    parted: tuple[BlockPool, int], owner: str
) -> None:
    pool, each = parted
    names = ["tree", "private", "in flight", "free"]
    parts = {name: range(place * each, place * each + each) for place, name in enumerate(names)}
    changes = {
        pool.publish: "private",
        pool.announce: "private",
        pool.free_private: "private",
        pool.commit: "in flight",
        pool.withdraw: "in flight",
        pool.free_from_tree: "tree",
    }
    stranger = parts[owner][0] if owner in parts else pool.num_blocks
    before = state(pool), pool.in_flight_blocks
    for change, source in changes.items():
        own = list(parts[source])
        wrongs = [[*own, stranger]]  # where it is an own one, it is named twice
        if owner != source:
            wrongs.append([stranger, *own])
        for wrong in wrongs:
            with pytest.raises(OwnershipError):
                change(token_array(wrong))
            assert (state(pool), pool.in_flight_blocks) == before
            assert pool.sum_problem() is None


@pytest.mark.parametrize("wrong", [-1, 100, 2**31 - 1])
@pytest.mark.parametrize("many", [1, 60])
def test_a_block_that_does_not_exist_is_named(wrong: int, many: int) -> None:
    pool = BlockPool(100)
    own = pool.allocate(many)
    before = state(pool)
    with pytest.raises(OwnershipError, match=f"block {wrong} does not exist; there are 100"):
        pool.free_private(own + token_array([wrong]))
    assert state(pool) == before


@pytest.mark.parametrize("many", [2, 100])
def test_a_block_named_twice_is_said_to_be(many: int) -> None:
    pool = BlockPool(many)
    own = pool.allocate(many)
    before = state(pool)
    with pytest.raises(OwnershipError, match=f"block {own[1]} "):
        pool.publish(own + own[1:2])
    assert state(pool) == before


def test_a_quarantined_block_is_left_out_whoever_gives_it_back(pool: BlockPool) -> None:
    for block in (0, 2, 4, 4):
        pool.quarantine(block)
        assert pool.sum_problem() is None
    assert [pool.owner_of(block) for block in (0, 2, 4)] == [QUARANTINED] * 3
    assert pool.quarantined_blocks == 3
    assert list(pool.free_list()) == [5]
    pool.free_from_tree(token_array([0, 1]))
    pool.free_private(token_array([2, 3]))
    assert sorted(pool.allocate(3)) == [1, 3, 5]
    with pytest.raises(OwnershipError, match="0 are free"):
        pool.allocate(1)


def test_books_that_do_not_add_up_are_told(pool: BlockPool) -> None:
    assert pool.sum_problem() is None
    pool._free.pop()
    assert pool.sum_problem() == "the free list holds 1 blocks, the books say 2"
    pool._counts[PRIVATE] += 1
    assert pool.sum_problem() == "[2, 3, 0, 2, 0] blocks by owner do not add up to 6"
