"""Which leaf goes first when blocks are needed."""

from radix_engine.cache.eviction.agent import AgentLeaves
from radix_engine.cache.eviction.leaf_index import LeafIndex
from radix_engine.cache.eviction.lru import LruLeaves
from radix_engine.cache.eviction.rule import EvictionRule
from radix_engine.cache.eviction.rules import RULES, make_rule

__all__ = ["RULES", "AgentLeaves", "EvictionRule", "LeafIndex", "LruLeaves", "make_rule"]
