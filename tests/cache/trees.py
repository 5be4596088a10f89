"""Small helpers of the cache's tests: what a request does with the cache, in a few lines."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from radix_engine.cache import (
    DEFAULT,
    CacheMode,
    Lease,
    Namespace,
    PrefixCache,
    pack,
    unpack,
)
from radix_engine.cache.audit import walk


def ids(count: int, seed: int = 0) -> list[int]:
    """Token ids that differ between seeds from the first one on."""
    return [4 + (seed + 7 * index) % 500 for index in range(count)]


def make_cache(num_blocks: int, block_size: int = 16, **options: Any) -> PrefixCache:
    """A cache whose matches end at whole blocks, unless a test asks for more."""
    options.setdefault("partial_blocks", False)
    return PrefixCache(num_blocks, block_size, **options)


def lease_of(cache: PrefixCache, tokens: Iterable[int]) -> Lease:
    """Match and lease a prompt."""
    return cache.lease(cache.match(pack(tokens)))


def lease_nothing(cache: PrefixCache, namespace: Namespace = DEFAULT) -> Lease:
    """The lease of a request that reads nothing from the tree."""
    return cache.lease(cache.match(b"", namespace, CacheMode.BYPASS))


def take(cache: PrefixCache, count: int) -> array[int]:
    """Allocate blocks that must be there."""
    blocks = cache.allocate(count)
    assert blocks is not None
    return blocks


def publish(cache: PrefixCache, lease: Lease, tokens: Sequence[int]) -> array[int]:
    """Compute and publish the full blocks of ``tokens`` that follow the lease; their blocks."""
    size = cache.block_size
    run = tokens[lease.num_tokens : len(tokens) // size * size]
    return cache.publish(lease, pack(run), take(cache, len(run) // size))


def hold(cache: PrefixCache, tokens: Sequence[int]) -> Lease:
    """Store a prompt's full blocks and keep them pinned."""
    lease = lease_of(cache, tokens)
    publish(cache, lease, tokens)
    return lease


def store(cache: PrefixCache, tokens: Sequence[int]) -> array[int]:
    """Store a prompt's full blocks, unpinned; returns them, first token first."""
    lease = hold(cache, tokens)
    blocks = lease.blocks()
    cache.release(lease)
    return blocks


def covered(cache: PrefixCache, tokens: Iterable[int]) -> int:
    """How many of these tokens the tree covers."""
    return cache.match(pack(tokens)).num_tokens


def stored(cache: PrefixCache, tokens: Iterable[int]) -> int:
    """How many of these tokens the tree holds, the last one too."""
    return covered(cache, [*tokens, 0])


def edges(cache: PrefixCache) -> list[list[int]]:
    """The token runs of all nodes with blocks, as far as these go, sorted."""
    size = cache.block_size
    return sorted(
        unpack(bytes(node.run))[: len(node.blocks) * size]
        for node in walk(cache.root)
        if node.blocks
    )


def assert_sound(
    cache: PrefixCache, leases: Iterable[Lease] = (), private: Iterable[array[int]] = ()
) -> None:
    """The full audit, with all live leases and private blocks."""
    assert cache.audit(private, leases) == []
    pool = cache.pool
    assert pool.free_blocks == len(pool.free_list())
    assert pool.private_blocks == sum(len(blocks) for blocks in private)
    held = pool.private_blocks + pool.in_flight_blocks + pool.tree_blocks
    assert pool.free_blocks + held == pool.num_blocks
    assert 0 <= cache.evictable_blocks <= pool.tree_blocks
