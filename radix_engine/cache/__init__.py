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

from radix_engine.cache.block_pool import BlockPool, OwnershipError
from radix_engine.cache.branch import Branch, branch_after
from radix_engine.cache.dump import NodeDump, dump
from radix_engine.cache.event_json import from_json, to_json
from radix_engine.cache.events import (
    ALL,
    Cleared,
    EventsLost,
    EventStream,
    Everything,
    Removed,
    Snapshot,
    Stored,
)
from radix_engine.cache.eviction import RULES, EvictionRule
from radix_engine.cache.explanation import Explanation, explain_prompt
from radix_engine.cache.interface import (
    CacheCounters,
    LeaseView,
    MatchView,
    PrefixIndex,
    StaleMatch,
)
from radix_engine.cache.lease import Lease, Match
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import DEFAULT, Namespace
from radix_engine.cache.outline import Fold, Outline, Scope, Sighting
from radix_engine.cache.outline_walk import OutlineWalk, outline
from radix_engine.cache.parting import Parting, Segment
from radix_engine.cache.payload import MISSING_PAYLOAD
from radix_engine.cache.payload_reading import first_known
from radix_engine.cache.prefix_cache import PrefixCache
from radix_engine.cache.reason import Cause, MatchEnd, Reason
from radix_engine.cache.retention import Retention, RetentionRefused
from radix_engine.cache.token_run import TOKEN_BYTES, pack, token_array, unpack
from radix_engine.cache.tree_mirror import TreeMirror

__all__ = [
    "ALL",
    "DEFAULT",
    "MISSING_PAYLOAD",
    "RULES",
    "TOKEN_BYTES",
    "BlockPool",
    "Branch",
    "CacheCounters",
    "CacheMode",
    "Cause",
    "Cleared",
    "EventStream",
    "EventsLost",
    "Everything",
    "EvictionRule",
    "Explanation",
    "Fold",
    "Lease",
    "LeaseView",
    "Match",
    "MatchEnd",
    "MatchView",
    "Namespace",
    "NodeDump",
    "Outline",
    "OutlineWalk",
    "OwnershipError",
    "Parting",
    "PrefixCache",
    "PrefixIndex",
    "Reason",
    "Removed",
    "Retention",
    "RetentionRefused",
    "Scope",
    "Segment",
    "Sighting",
    "Snapshot",
    "StaleMatch",
    "Stored",
    "TreeMirror",
    "branch_after",
    "dump",
    "explain_prompt",
    "first_known",
    "from_json",
    "outline",
    "pack",
    "to_json",
    "token_array",
    "unpack",
]
