"""The prefix cache: a radix tree of token runs over a pool of KV blocks. Knows neither torch nor a
model.

>>> from radix_engine.cache import PrefixCache, pack
>>> cache = PrefixCache(num_blocks=64, block_size=16)
>>> prompt = pack(range(40))
>>> lease = cache.lease(cache.match(prompt))
>>> blocks = cache.allocate(2)
>>> _ = cache.publish(lease, pack(range(32)), blocks)
>>> cache.release(lease)
>>> cache.match(prompt).num_tokens
32
"""

from radix_engine.cache.audit import audit
from radix_engine.cache.block_pool import BlockPool, OwnershipError
from radix_engine.cache.dump import NodeDump, dump
from radix_engine.cache.lease import Lease, Match
from radix_engine.cache.prefix_cache import PrefixCache, StaleMatch
from radix_engine.cache.token_run import pack, token_array, unpack

__all__ = [
    "BlockPool",
    "Lease",
    "Match",
    "NodeDump",
    "OwnershipError",
    "PrefixCache",
    "StaleMatch",
    "audit",
    "dump",
    "pack",
    "token_array",
    "unpack",
]
