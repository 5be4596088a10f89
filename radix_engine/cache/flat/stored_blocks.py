"""Which block has which key, and how many leases pin it.

A block of the index is in one of these states, told by its pins and its key::

    pins  key   in the pool         who owns it
    0     yes   TREE                the free queue: free but cached, found and taken by anybody
    > 0   yes   TREE or IN_FLIGHT   the leases that pin it
    > 0   no    TREE or IN_FLIGHT   the same, but nobody else finds it (flushed, withdrawn, or
                                    the second copy of what is stored); free when the last ends
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from radix_engine.cache.block_pool import IN_FLIGHT, BlockPool
from radix_engine.cache.flat.free_queue import FreeQueue
from radix_engine.cache.token_run import token_array


class StoredBlocks:
    """Keys and pins over the blocks of ``pool``. Every operation but ``clear`` is O(1) a block.

    ``index``: key -> block. ``keys``: block -> key, None where it has none. ``pins``: block -> how
    often leases hold it. ``withdrawn``: announced, never computed, still held by leases.
    """

    __slots__ = ("index", "keys", "pins", "pool", "queue", "withdrawn")

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.index: dict[bytes, int] = {}
        self.keys: list[bytes | None] = [None] * pool.num_blocks
        self.pins = [0] * pool.num_blocks
        self.queue = FreeQueue()
        self.withdrawn: set[int] = set()

    def announce(self, blocks: array[int], keys: list[bytes]) -> None:
        """A lease pins private blocks that a step will fill; others find those whose key is not
        taken."""
        self.pool.announce(blocks)
        index = self.index
        for block, key in zip(blocks, keys, strict=True):
            self._hold(block, None if key in index else key)

    def before_in_flight(self, keys: list[bytes]) -> list[bytes]:
        """The keys up to the first whose block another lease has in flight."""
        find, owner_of = self.index.get, self.pool.owner_of
        for place, key in enumerate(keys):
            block = find(key)
            if block is not None and owner_of(block) == IN_FLIGHT:
                return keys[:place]
        return keys

    def publish(self, blocks: array[int], keys: list[bytes]) -> tuple[array[int], int]:
        """A lease pins computed private blocks, or the stored block of the same key (none in
        flight): then the new one is free. Returns the pinned blocks and how many were freed."""
        self.pool.publish(blocks)
        find = self.index.get
        table, duplicates = token_array(), token_array()
        for place, block in enumerate(blocks):
            key = keys[place] if keys else None
            stored = None if key is None else find(key)
            if stored is None:
                self._hold(block, key)
                table.append(block)
            else:
                self.pin((stored,))
                table.append(stored)
                duplicates.append(block)
        if duplicates:
            self.pool.free_from_tree(duplicates)
        return table, len(duplicates)

    def pin(self, blocks: Iterable[int]) -> None:
        """A lease pins stored blocks; nobody evicts them from now on."""
        pins, remove = self.pins, self.queue.remove
        for block in blocks:
            if not pins[block]:
                remove(block)
            pins[block] += 1

    def unpin(self, blocks: Iterable[int], now: float) -> None:
        """A lease ends. What nobody pins then enters the queue in the order given, or is free where
        it has no key."""
        pins, keys, add = self.pins, self.keys, self.queue.add
        computed, empty = token_array(), token_array()
        for block in blocks:
            pins[block] -= 1
            if pins[block]:
                continue
            if keys[block] is not None:
                add(block, now)
            elif block in self.withdrawn:
                empty.append(block)
            else:
                computed.append(block)
        if computed:
            self.pool.free_from_tree(computed)
        if empty:
            self.withdrawn.difference_update(empty)
            self.pool.withdraw(empty)

    def withdraw(self, blocks: Iterable[int]) -> None:
        """A lease gives announced blocks back: nobody finds them, and they are free as soon as no
        other lease holds them."""
        free = token_array()
        for block in blocks:
            self._forget(block)
            self.pins[block] -= 1
            if self.pins[block]:
                self.withdrawn.add(block)
            else:
                free.append(block)
        self.pool.withdraw(free)

    def drop(self, blocks: array[int]) -> int:
        """Blocks that were taken from the queue are free and forgotten; how many they are."""
        for block in blocks:
            self._forget(block)
        if blocks:
            self.pool.free_from_tree(blocks)
        return len(blocks)

    def give_up(self, blocks: Iterable[int]) -> None:
        """Nobody finds these blocks any more, nor takes them from the queue."""
        for block in blocks:
            self._forget(block)
            if block in self.queue:
                self.queue.remove(block)

    def clear(self) -> int:
        """Forget all keys; how many blocks are free at once. The others are when their leases end.
        Cost: O(all blocks)."""
        freed = self.drop(self.queue.take(len(self.queue)))
        self.index.clear()
        self.keys = [None] * self.pool.num_blocks
        return freed

    def _hold(self, block: int, key: bytes | None) -> None:
        self.pins[block] = 1
        if key is not None:
            self.index[key] = block
            self.keys[block] = key

    def _forget(self, block: int) -> None:
        key = self.keys[block]
        if key is not None:
            del self.index[key]
            self.keys[block] = None
