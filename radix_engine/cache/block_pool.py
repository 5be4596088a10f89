"""All KV blocks of one device, and who owns each.

               allocate             publish                evict, expire, flush
  FREE ----------------> PRIVATE --------------> TREE ---------------------------> FREE
                          |    |                  ^
                    free  |    |  announce        | commit
                          v    +--> IN_FLIGHT ----+
                        FREE            |
                                        +--- withdraw ---> FREE

A block has exactly one owner: the free list, one request's private tail, or the tree, which tells
those that a step will fill (in flight) from those that hold what they should. Every change names
the owner it takes the blocks from, so that a block freed twice or published twice is refused before
anything has changed. A block that an audit found in two places, or in none, is quarantined: nobody
gets it any more.
"""

from __future__ import annotations

from array import array

import numpy as np

from radix_engine.cache.token_run import token_array

FREE, PRIVATE, IN_FLIGHT, TREE, QUARANTINED = range(5)
_OWNER_NAMES = ("the free list", "a request", "a step in flight", "the tree", "nobody (quarantine)")

# From about this many blocks on numpy is faster than a loop.
_MANY = 48


class OwnershipError(RuntimeError):
    """A block was handed on by somebody who does not own it. Nothing was changed."""


class BlockPool:
    """The free list and one owner byte per block. Every operation costs O(blocks it is given)."""

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a block pool needs at least 1 block, not {num_blocks}")
        self.num_blocks = num_blocks
        self._owner = bytearray(num_blocks)
        self._owners = np.frombuffer(self._owner, np.uint8)  # the same bytes
        self._place = np.zeros(num_blocks, np.int32)  # scratch, to find a block named twice
        # Popped from the end: low ids first, and the block freed last is used first (its memory is
        # warm).
        self._free = token_array(range(num_blocks - 1, -1, -1))
        self._counts = [num_blocks, 0, 0, 0, 0]
        self.quarantined: set[int] = set()  # in use by nobody any more

    @property
    def free_blocks(self) -> int:
        """Blocks on the free list."""
        return self._counts[FREE]

    @property
    def private_blocks(self) -> int:
        """Blocks in requests' private tails."""
        return self._counts[PRIVATE]

    @property
    def in_flight_blocks(self) -> int:
        """Blocks in the tree that the current step fills."""
        return self._counts[IN_FLIGHT]

    @property
    def tree_blocks(self) -> int:
        """Computed blocks that the tree holds, pinned or not."""
        return self._counts[TREE]

    @property
    def quarantined_blocks(self) -> int:
        """Blocks that nobody gets any more."""
        return self._counts[QUARANTINED]

    def allocate(self, count: int) -> array[int]:
        """Take ``count`` free blocks for a request. Raises OwnershipError when fewer are free."""
        if count > len(self._free):
            raise OwnershipError(f"{count} blocks asked for, {len(self._free)} are free")
        if count == 0:
            return token_array()
        blocks = self._free[-count:]
        self._hand_over(blocks, FREE, PRIVATE)
        del self._free[-count:]
        return blocks

    def publish(self, blocks: array[int]) -> None:
        """A request hands computed blocks to the tree."""
        self._hand_over(blocks, PRIVATE, TREE)

    def announce(self, blocks: array[int]) -> None:
        """A request hands blocks to the tree that the current step will fill."""
        self._hand_over(blocks, PRIVATE, IN_FLIGHT)

    def commit(self, blocks: array[int]) -> None:
        """The step has filled these blocks; those in quarantine stay there."""
        self._hand_over(self._without_quarantined(blocks), IN_FLIGHT, TREE)

    def withdraw(self, blocks: array[int]) -> None:
        """These blocks will not be filled; they are free."""
        self._free_from(IN_FLIGHT, blocks)

    def free_private(self, blocks: array[int]) -> None:
        """A request gives blocks of its private tail back."""
        self._free_from(PRIVATE, blocks)

    def free_from_tree(self, blocks: array[int]) -> None:
        """The tree gives blocks back (evict, expire, flush)."""
        self._free_from(TREE, blocks)

    def quarantine(self, block: int) -> None:
        """Take a block out of use, whoever holds it. Cost: O(blocks) where it was free."""
        owner = self._owner[block]
        if owner == QUARANTINED:
            return
        if owner == FREE and block in self._free:
            self._free.remove(block)
        self._counts[owner] -= 1
        self._counts[QUARANTINED] += 1
        self._owner[block] = QUARANTINED
        self.quarantined.add(block)

    def before_quarantined(self, blocks: array[int]) -> int:
        """How many of these come before the first that is in quarantine. Cost: constant while none
        is."""
        quarantined = self.quarantined
        if not quarantined or quarantined.isdisjoint(blocks):
            return len(blocks)
        return next(index for index, block in enumerate(blocks) if block in quarantined)

    def owner_of(self, block: int) -> int:
        """FREE, PRIVATE, IN_FLIGHT, TREE or QUARANTINED."""
        return self._owner[block]

    def free_list(self) -> array[int]:
        """A copy of the free list, for audits."""
        return self._free[:]

    def sum_problem(self) -> str | None:
        """What the books say that cannot be, or None. Cost: constant; for every step."""
        counts = self._counts
        if sum(counts) != self.num_blocks or min(counts) < 0:
            return f"{counts} blocks by owner do not add up to {self.num_blocks}"
        if len(self._free) != counts[FREE]:
            return f"the free list holds {len(self._free)} blocks, the books say {counts[FREE]}"
        return None

    def _free_from(self, source: int, blocks: array[int]) -> None:
        blocks = self._without_quarantined(blocks)
        self._hand_over(blocks, source, FREE)
        self._free.extend(blocks)

    def _without_quarantined(self, blocks: array[int]) -> array[int]:
        if not self.quarantined:
            return blocks
        return token_array(block for block in blocks if block not in self.quarantined)

    def _hand_over(self, blocks: array[int], source: int, target: int) -> None:
        count = len(blocks)
        if count >= _MANY:
            self._hand_over_many(blocks, source, target)
        else:
            self._hand_over_few(blocks, source, target)
        self._counts[source] -= count
        self._counts[target] += count

    def _hand_over_few(self, blocks: array[int], source: int, target: int) -> None:
        owner = self._owner
        done = 0
        try:
            for block in blocks:
                if block < 0 or owner[block] != source:
                    raise IndexError
                owner[block] = target
                done += 1
        except IndexError:
            for earlier in blocks[:done]:
                owner[earlier] = source
            raise self._refused(blocks[done], source) from None

    def _hand_over_many(self, blocks: array[int], source: int, target: int) -> None:
        index = np.frombuffer(blocks, np.int32)
        if not 0 <= int(index.min()) <= int(index.max()) < self.num_blocks:
            raise self._refused(min(blocks) if min(blocks) < 0 else max(blocks), source)
        wrong = self._owners[index] != source
        if not wrong.any():
            places = np.arange(len(index), dtype=np.int32)
            self._place[index] = places
            wrong = self._place[index] != places  # named twice: the later one took the place
        if wrong.any():
            raise self._refused(int(index[wrong.argmax()]), source)
        self._owners[index] = target

    def _refused(self, block: int, source: int) -> OwnershipError:
        if not 0 <= block < self.num_blocks:
            return OwnershipError(f"block {block} does not exist; there are {self.num_blocks}")
        holder = self._owner[block]
        if holder == source:
            return OwnershipError(f"block {block} is named twice")
        return OwnershipError(
            f"block {block} belongs to {_OWNER_NAMES[holder]}, not to {_OWNER_NAMES[source]}"
        )
