"""Decoding with a shared beginning that is read once (a cascade) against reading it for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from radix_engine.attention.flashinfer_pages import shared_pages, split_levels, step_pages
from radix_engine.attention.flashinfer_wrappers import (
    Heads,
    Run,
    Scores,
    WrapperSet,
    place_reads,
)
from radix_engine.attention.interface import AttentionSpan
from radix_engine.gpu.sizing import WORKSPACE_BYTES
from radix_engine.memory.kv_memory import KVMemory, zeroed_memory
from workloads.gpu.checks_ops import ATTENTION_TOLERANCE, BLOCK
from workloads.gpu.outcomes import Check, compare
from workloads.gpu.shapes import HeadShape

PART = "cascade"
SHARED = (256, 1024)
REQUESTS = 64
OWN_TOKENS = 100  # behind what is shared


@dataclass(frozen=True, slots=True)
class CascadeCase:
    """One layer's attention of a decode step, planned both ways over the same K and V."""

    name: str
    queries: torch.Tensor
    layer: torch.Tensor
    flat: Run
    cascade: Run

    def run_flat(self) -> torch.Tensor:
        """Every request reads all of its context."""
        return self.flat(self.queries, self.layer)

    def run_cascade(self) -> torch.Tensor:
        """The shared blocks are read once for all requests."""
        return self.cascade(self.queries, self.layer)


@torch.inference_mode()
def cascade_case(
    flashinfer: Any,
    device: torch.device,
    dtype: torch.dtype,
    shape: HeadShape,
    shared: int,
    seed: int,
    *,
    requests: int = REQUESTS,
    own: int = OWN_TOKENS,
) -> CascadeCase:
    """``requests`` that share ``shared`` tokens (whole blocks) and have ``own`` each.

    Raises ValueError where a step like this would not be computed as a cascade.
    """
    common = list(range(shared // BLOCK))
    each = -(-own // BLOCK)
    spans = [
        AttentionSpan(
            shared + own - 1, 1, [*common, *range(first := len(common) + each * i, first + each)]
        )
        for i in range(requests)
    ]
    blocks = len(common) + each * requests
    memory = KVMemory(1, blocks, BLOCK, shape.num_kv_heads, shape.head_dim, dtype, device)
    generator = torch.Generator(device).manual_seed(seed)
    memory.layers[0].normal_(generator=generator)
    queries = torch.empty(
        requests, shape.num_heads, shape.head_dim, dtype=dtype, device=device
    ).normal_(generator=generator)
    pages = step_pages(spans, BLOCK, blocks)
    found = shared_pages(pages)
    if found != len(common):
        raise ValueError(f"{found * BLOCK} shared tokens were found instead of {shared}")
    heads = Heads(shape.num_heads, shape.num_kv_heads, shape.head_dim, BLOCK, dtype)
    workspace = zeroed_memory((WORKSPACE_BYTES,), torch.uint8, device)
    wrappers = WrapperSet(flashinfer, heads, workspace)
    scores = Scores(shape.head_dim**-0.5, None, None)
    (whole,) = place_reads([pages], device)
    levels = place_reads(list(split_levels(pages, found)), device)
    return CascadeCase(
        f"{requests} requests, {shared:,} shared tokens, {shape}",
        queries,
        memory.layers[0],
        flat=wrappers.decode(scores, whole),
        cascade=wrappers.cascade(scores, levels),
    )


@torch.inference_mode()
def check_cascade(case: CascadeCase) -> Check:
    """Both ways yield the same, but for rounding."""
    tolerance = ATTENTION_TOLERANCE[case.queries.dtype]
    return compare(PART, case.name, case.run_cascade(), case.run_flat(), tolerance)
