"""All KV blocks of one device, and who owns each.

    allocate            publish              evict, flush
  FREE -------> PRIVATE -------> TREE -------------------> FREE
                   |      free                              ^
                   +----------------------------------------+

A block has exactly one owner: the free list, one request's private tail, or one node of the tree.
Every change names the owner it takes the blocks from, so that a block freed twice or published
twice is refused before anything has changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from radix_engine.cache.token_run import token_array

FREE, PRIVATE, TREE = 0, 1, 2
_OWNER_NAMES = ("the free list", "a request", "the tree")


class OwnershipError(RuntimeError):
    """A block was handed on by somebody who does not own it. Nothing was changed."""


class BlockPool:
    """The free list and one owner byte per block. Every operation costs O(blocks it is given)."""

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a block pool needs at least 1 block, not {num_blocks}")
        self.num_blocks = num_blocks
        self._owner = bytearray(num_blocks)
        # Popped from the end: low ids first, and the block freed last is used first (its memory is
        # warm).
        self._free = token_array(range(num_blocks - 1, -1, -1))
        self._counts = [num_blocks, 0, 0]

    @property
    def free_blocks(self) -> int:
        """Blocks on the free list."""
        return self._counts[FREE]

    @property
    def private_blocks(self) -> int:
        """Blocks in requests' private tails."""
        return self._counts[PRIVATE]

    @property
    def tree_blocks(self) -> int:
        """Blocks that nodes hold, pinned or not."""
        return self._counts[TREE]

    def allocate(self, count: int) -> array[int]:
        """Take ``count`` free blocks for a request. Raises OwnershipError when fewer are free."""
        if count > len(self._free):
            raise OwnershipError(f"{count} blocks asked for, {len(self._free)} are free")
        if count == 0:
            return token_array()
        blocks = self._free[-count:]
        del self._free[-count:]
        self._hand_over(blocks, FREE, PRIVATE)
        return blocks

    def publish(self, blocks: Iterable[int]) -> None:
        """A request hands its computed blocks to the tree."""
        self._hand_over(blocks, PRIVATE, TREE)

    def free_private(self, blocks: array[int]) -> None:
        """A request gives blocks of its private tail back."""
        self._hand_over(blocks, PRIVATE, FREE)
        self._free.extend(blocks)

    def free_from_tree(self, blocks: array[int]) -> None:
        """The tree gives blocks back (evict, flush)."""
        self._hand_over(blocks, TREE, FREE)
        self._free.extend(blocks)

    def owner_of(self, block: int) -> int:
        """FREE, PRIVATE or TREE."""
        return self._owner[block]

    def free_list(self) -> array[int]:
        """A copy of the free list, for audits."""
        return self._free[:]

    def _hand_over(self, blocks: Iterable[int], source: int, target: int) -> None:
        owner = self._owner
        done = 0
        for block in blocks:
            if owner[block] != source:
                for earlier, _ in zip(blocks, range(done), strict=False):
                    owner[earlier] = source
                raise OwnershipError(
                    f"block {block} belongs to {_OWNER_NAMES[owner[block]]}, "
                    f"not to {_OWNER_NAMES[source]}"
                )
            owner[block] = target
            done += 1
        self._counts[source] -= done
        self._counts[target] += done
