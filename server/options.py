"""How an engine is set up."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler import Limits

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What to serve and with what.

    ``model``: a folder, a .gguf file or a hub id; None for the default model. ``dtype``: ``auto``
    (bf16 where the processor computes it natively, else fp32), ``bf16`` or ``fp32``. ``kv_memory``:
    a size such as ``2GiB``, a share of the free memory such as ``25%``, or None for the default.
    ``threads``: of the model; None for all processors this process may use.
    """

    model: str | None = None
    dtype: str = "auto"
    kv_memory: str | None = None
    threads: int | None = None
    prefix_cache: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")
