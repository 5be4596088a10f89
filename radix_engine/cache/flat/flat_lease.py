"""What a look-up in the flat index returns, and the receipt for what a request then pins."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from radix_engine.cache.mode import CacheMode
from radix_engine.cache.token_run import token_array


@dataclass(frozen=True, slots=True)
class FlatMatch:
    """The stored ``blocks`` that a prompt begins with. Read-only: it pins nothing.

    ``key`` is that of the last of them, or the namespace's start of the chain.
    """

    blocks: array[int]
    key: bytes
    num_tokens: int
    version: int
    mode: CacheMode

    @property
    def copy_rows(self) -> int:
        """Always 0: a match is of whole blocks."""
        return 0

    @property
    def copy_source(self) -> int:
        """Always -1, no block."""
        return -1


class FlatLease:
    """The receipt for pinned blocks; only the index changes it.

    ``held`` are the blocks, first token first; the last ``announced`` of them are not computed yet.
    ``key`` is the key after all of them, ``settled_key`` that after the computed ones while some
    are announced. ``epoch`` counts the flushes before the lease began.
    """

    __slots__ = (
        "announced",
        "block_size",
        "epoch",
        "held",
        "key",
        "num_tokens",
        "released",
        "settled_key",
    )

    def __init__(self, held: array[int], key: bytes, block_size: int, epoch: int) -> None:
        self.held = held
        self.key = key
        self.settled_key = key
        self.block_size = block_size
        self.num_tokens = len(held) * block_size
        self.announced = 0
        self.epoch = epoch
        self.released = False

    @property
    def in_flight_tokens(self) -> int:
        """The last of these: announced, and not computed yet."""
        return self.announced * self.block_size

    def blocks(self) -> array[int]:
        """The leased blocks, first token first; none after the release. Cost: one copy."""
        return self.held[:]

    def extend(self, blocks: array[int], keys: list[bytes]) -> None:
        """The lease covers these blocks too; ``keys`` are theirs, or none."""
        self.held.extend(blocks)
        self.num_tokens += len(blocks) * self.block_size
        if keys:
            self.key = keys[-1]

    def announce(self, blocks: array[int], keys: list[bytes]) -> None:
        """The lease covers these blocks, which are to be computed."""
        if not self.announced:
            self.settled_key = self.key
        self.announced += len(blocks)
        self.extend(blocks, keys)

    def take_back(self) -> array[int]:
        """Take the announced blocks, of which there are some, out of the lease."""
        blocks = self.held[-self.announced :]
        del self.held[-self.announced :]
        self.num_tokens -= len(blocks) * self.block_size
        self.key = self.settled_key
        self.announced = 0
        return blocks

    def give_back(self) -> array[int]:
        """End the lease; its blocks."""
        blocks, self.held = self.held, token_array()
        self.released = True
        return blocks
