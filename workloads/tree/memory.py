"""How much memory the Python objects of a prefix cache take: tokens, nodes, dictionaries, all.

Summed ``sys.getsizeof`` over every object that can be reached from the cache, each counted once:
runs, block arrays, nodes, dictionaries and their keys, numbers, the leaf index, the ghosts. What
the allocator loses by rounding up (some 3%) is not in it, nor is the KV memory itself.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType

from radix_engine.cache import PrefixCache
from workloads.tree.build import BLOCK, GHOSTS_PER_BLOCK, Progress, empty_tree, store, tokens

LONG_RUN = 1_024


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a cache: of the tree and what goes with it, and of the block pool's books.

    The pool's are the same whatever it holds. ``by_type``: the tree's bytes by type of object.
    """

    tokens: int
    leaves: int
    tree: int
    pool_per_token: float
    by_type: dict[str, int]

    @property
    def per_token(self) -> float:
        """Bytes for a cached token, with its part of a pool that is full."""
        return self.tree / self.tokens + self.pool_per_token

    @property
    def per_leaf(self) -> float:
        """Bytes for a leaf and what is above it, with its part of a pool that is full."""
        return self.per_token * self.tokens / self.leaves

    def data(self) -> dict[str, object]:
        """For the results."""
        return {
            "leaves": self.leaves,
            "cached_tokens": self.tokens,
            "bytes_per_cached_token": self.per_token,
            "bytes_per_leaf": self.per_leaf,
            "tree_bytes": self.tree,
            "tree_bytes_by_type": self.by_type,
            "pool_bytes_per_token": self.pool_per_token,
        }


def footprint(cache: PrefixCache, leaves: int) -> Footprint:
    """Measure a cache of so many leaves. Cost: about a microsecond an object."""
    pool = sum(reachable(cache.pool).values())
    by_type = reachable(cache, without=cache.pool)
    return Footprint(
        tokens=cache.pool.tree_blocks * BLOCK,
        leaves=leaves,
        tree=sum(by_type.values()),
        pool_per_token=pool / (cache.pool.num_blocks * BLOCK),
        by_type=dict(by_type.most_common(12)),
    )


def reachable(start: object, without: object = None) -> Counter[str]:
    """Bytes of all objects that ``start`` leads to, by type; code and classes are not followed."""
    sizes: Counter[str] = Counter()
    seen = {id(start), id(without), id(None), id(sys.modules)}
    todo = [start]
    while todo:
        thing = todo.pop()
        sizes[type(thing).__name__] += sys.getsizeof(thing)
        for other in gc.get_referents(thing):
            if id(other) not in seen:
                seen.add(id(other))
                if isinstance(other, FunctionType):
                    todo.extend(cell for cell in other.__closure__ or () if id(cell) not in seen)
                    seen.update(id(cell) for cell in other.__closure__ or ())
                elif not isinstance(other, type | ModuleType | BuiltinFunctionType):
                    todo.append(other)
    return sizes


def long_runs(runs: int, progress: Progress) -> tuple[Footprint, Footprint]:
    """Trees of ``runs`` runs of LONG_RUN tokens: without ghosts, and with as many as there are
    with the default."""
    per_run = LONG_RUN // BLOCK
    tree = empty_tree(0, room=runs * per_run)
    cache = PrefixCache(runs * per_run, BLOCK, ghost_blocks=GHOSTS_PER_BLOCK * runs * per_run)
    fresh: Footprint | None = None
    for number in range((1 + GHOSTS_PER_BLOCK) * runs):
        if number == runs:
            fresh = footprint(cache, runs)
        store(cache, tokens(tree.rng, LONG_RUN))
        progress(1)
    assert fresh is not None
    return fresh, footprint(cache, runs)
