"""Which prefix cache an engine runs on."""

from __future__ import annotations

import time

from radix_engine.cache import NodeDump, PrefixCache, dump
from radix_engine.cache.flat import FlatCache
from server.options import CacheOptions


def make_cache(options: CacheOptions, num_blocks: int, block_size: int) -> PrefixCache | FlatCache:
    """An empty cache as the options want it."""
    if options.index == "hash":
        return FlatCache(num_blocks, block_size, ttl=options.ttl_s)
    return PrefixCache(
        num_blocks,
        block_size,
        eviction=options.eviction,
        partial_blocks=options.partial_blocks,
        ttl=options.ttl_s,
    )


def dump_of(cache: PrefixCache | FlatCache) -> list[NodeDump] | None:
    """What the cache stores, for the server's operator to look at, since it tells of all tenants;
    None for one that is no tree."""
    return dump(cache, time.monotonic()) if isinstance(cache, PrefixCache) else None


def blocks_of(cache: PrefixCache | FlatCache) -> dict[str, int]:
    """How many blocks are in which state. Those that are free, private, in flight, cached or
    quarantined are all there are; some of the cached ones are evictable, and some retained. Any
    thread; constant cost."""
    pool = cache.pool
    return {
        "blocks_free": pool.free_blocks,
        "blocks_private": pool.private_blocks,
        "blocks_in_flight": pool.in_flight_blocks,
        "blocks_cached": pool.tree_blocks,
        "blocks_evictable": cache.evictable_blocks,
        "blocks_retained": cache.retained_blocks if isinstance(cache, PrefixCache) else 0,
        "blocks_quarantined": pool.quarantined_blocks,
    }


def curve_of(cache: PrefixCache | FlatCache) -> dict[float, float]:
    """LRU's hit rate by multiples of the memory; empty for one that cannot tell. Any thread."""
    return cache.hit_rate_curve() if isinstance(cache, PrefixCache) else {}
