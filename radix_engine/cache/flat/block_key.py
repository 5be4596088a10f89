"""The keys of full blocks: a hash over the parent's key and the block's own tokens.

    key of block i = H(key of block i - 1, tokens of block i), where block -1 has the namespace's
    digest for its key

So a key stands for all tokens up to the end of its block and for whose they are. Tokens that do
not fill a block have no key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Literal

from radix_engine.cache.namespace import Namespace

HashName = Literal["sha256", "xxh3_128"]
Digest = Callable[[bytes], bytes]


def digest_function(name: HashName) -> Digest:
    """The hash of this name: ``sha256`` gives 32 bytes, ``xxh3_128`` 16.

    ``xxh3_128`` is faster, but whoever chooses prompts can make two runs of equal key. Raises
    ValueError for another name, ImportError where the package xxhash is missing.
    """
    if name == "sha256":
        return _sha256
    if name == "xxh3_128":
        try:
            from xxhash import xxh3_128_digest
        except ImportError as error:
            raise ImportError(
                "hash_name 'xxh3_128' needs the package xxhash; install it or use 'sha256'"
            ) from error
        return xxh3_128_digest
    raise ValueError(f"hash_name must be 'sha256' or 'xxh3_128', not {name!r}")


def chain_start(namespace: Namespace) -> bytes:
    """What stands for the key before a namespace's first block."""
    return namespace.digest()


def chain(digest: Digest, parent: bytes, run: bytes, block_bytes: int, end: int) -> Iterator[bytes]:
    """The keys of the blocks of ``run[:end]``, one after another; lazily, so that a look-up stops
    hashing at its first miss.

    ``block_bytes`` is the size of a block's tokens; what does not fill one at the end is left out.
    Cost: one digest a block.
    """
    for at in range(0, end - block_bytes + 1, block_bytes):
        parent = digest(parent + run[at : at + block_bytes])
        yield parent


def _sha256(data: bytes) -> bytes:
    return sha256(data).digest()
