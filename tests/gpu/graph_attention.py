"""The attention of recorded steps over the memory of a `Pair`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from radix_engine.attention.flashinfer_graphs import FlashInferGraphs
from radix_engine.attention.flashinfer_wrappers import Heads
from tests.gpu.attention_pair import (
    BLOCK,
    HEAD_DIM,
    KV_HEADS,
    Pair,
)

WRAPPER = "CUDAGraphBatchDecodeWithPagedKVCacheWrapper"


def graphs_over(
    pair: Pair, windows: Sequence[int | None], flashinfer: Any = None, **settings: Any
) -> FlashInferGraphs:
    """For steps of up to 4 sequences of up to 128 tokens."""
    return FlashInferGraphs(
        flashinfer or pair.fake,
        pair.memory,
        Heads(pair.group * KV_HEADS, KV_HEADS, HEAD_DIM, BLOCK, pair.dtype),
        windows,
        workspace=torch.zeros(2**20, dtype=torch.uint8),
        **{"largest": 4, "context_length": 128, **settings},
    )
