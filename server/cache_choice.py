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
