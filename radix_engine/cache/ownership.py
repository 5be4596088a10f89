"""Whether every block has exactly one owner, by the pool's books and by the holders' own word."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from radix_engine.cache.block_pool import (
    FREE,
    IN_FLIGHT,
    PRIVATE,
    QUARANTINED,
    TREE,
    BlockPool,
)


@dataclass(frozen=True, slots=True)
class Holdings:
    """The blocks that requests, the index, and the index's part in flight say they hold."""

    private: Iterable[array[int]]
    in_tree: Iterable[array[int]]
    in_flight: Iterable[array[int]]


def misowned(pool: BlockPool, holdings: Holdings) -> list[tuple[int, str]]:
    """Blocks without exactly one holder, or whose holder is not the one in the pool's books; each
    with what is wrong. Those in quarantine are left out. Cost: O(blocks)."""
    problems: list[tuple[int, str]] = []
    holders: Counter[int] = Counter()
    owners: list[tuple[int, str, Iterable[array[int]]]] = [
        (FREE, "the free list", [pool.free_list()]),
        (PRIVATE, "a request", holdings.private),
        (TREE, "the tree", holdings.in_tree),
        (IN_FLIGHT, "the tree, in flight", holdings.in_flight),
    ]
    for owner, name, held in owners:
        for blocks in held:
            holders.update(blocks)
            problems += [
                (block, f"block {block} is held by {name}, but the pool's books say otherwise")
                for block in blocks
                if pool.owner_of(block) not in (owner, QUARANTINED)
            ]
    problems += [
        (block, f"block {block} has {holders[block]} owners")
        for block in range(pool.num_blocks)
        if holders[block] != 1 and pool.owner_of(block) != QUARANTINED
    ]
    return problems


def ownership_problems(pool: BlockPool, holdings: Holdings) -> list[str]:
    """The same, one line each, and what does not add up."""
    problems = [text for _, text in misowned(pool, holdings)]
    problem = pool.sum_problem()
    return problems if problem is None else [*problems, problem]


def quarantine(pool: BlockPool, holdings: Holdings) -> list[str]:
    """Take every block that is not owned by exactly one out of use; what was wrong, one line each.

    Whoever reads such a block goes on reading it; nobody gets it again.
    """
    problems = misowned(pool, holdings)
    for block, _ in problems:
        pool.quarantine(block)
    return [text for _, text in problems]
