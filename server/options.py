"""How an engine is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from radix_engine.cache import RULES
from scheduler import ORDERS, Limits

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How prefixes are kept.

    ``enabled`` False computes every prompt whole. ``index``: ``tree``, or ``hash`` for a flat index
    of block hashes, to compare with (no partial blocks, no choice of eviction, no tree to look at).
    ``eviction``: lru, lfu, slru, fifo or priority. ``partial_blocks``: reuse the part of a block
    that two prompts share, by a copy. ``ttl_s``: seconds after which what nobody used leaves (None:
    when its room is needed).
    """

    enabled: bool = True
    index: Literal["tree", "hash"] = "tree"
    eviction: str = "lru"
    partial_blocks: bool = True
    ttl_s: float | None = None

    def __post_init__(self) -> None:
        if self.eviction not in RULES:
            raise ValueError(f"eviction must be one of {', '.join(RULES)}, not {self.eviction!r}")
        if self.index == "hash" and self.eviction != "lru":
            raise ValueError("eviction can be chosen for the tree only; the hash index has lru")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What to serve and with what.

    ``model``: a folder, a .gguf file or a hub id; None for the default model. ``dtype``: ``auto``
    (bf16 where the processor computes it natively, else fp32), ``bf16`` or ``fp32``. ``kv_memory``:
    a size such as ``2GiB``, a share of the free memory such as ``25%``, or None for the default.
    ``threads``: of the model; None for all processors this process may use. ``order``: which of the
    waiting requests starts first: lpm, dfs, hrrn, fcfs or priority. ``fair``: tenants take turns.
    """

    model: str | None = None
    dtype: str = "auto"
    kv_memory: str | None = None
    threads: int | None = None
    cache: CacheOptions = field(default_factory=CacheOptions)
    limits: Limits = field(default_factory=Limits)
    order: str = "lpm"
    fair: bool = False

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {self.order!r}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")
