"""One KV memory read both ways: through the fake flashinfer, and by the reference in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.interface import AttentionSpan
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.memory.kv_memory import KVMemory
from tests.gpu.binding import CountedFake, real_signatures
from tests.gpu.fake_flashinfer import FakeFlashInfer, make_fake
from tests.gpu.fp8_reference import RoundingAttention, as_fp8

HEAD_DIM, KV_HEADS, BLOCK, NUM_BLOCKS = 64, 2, 16, 120
DECODE = "BatchDecodeWithPagedKVCacheWrapper"
PREFILL = "BatchPrefillWithPagedKVCacheWrapper"
CASCADE = "MultiLevelCascadeAttentionWrapper"

MIXED = [(0, 20), (33, 1), (16, 7), (47, 2), (95, 1)]
DECODES = [(0, 1), (15, 1), (16, 1), (99, 1)]


def spans_of(sizes: Sequence[tuple[int, int]]) -> list[AttentionSpan]:
    """Spans (start, length) over disjoint tables."""
    ids = iter(np.random.default_rng(1).permutation(NUM_BLOCKS).tolist())
    return [
        AttentionSpan(start, length, [next(ids) for _ in range(-(-(start + length) // BLOCK))])
        for start, length in sizes
    ]


def sharing_spans(sizes: Sequence[tuple[int, int]], blocks: int) -> list[AttentionSpan]:
    """Spans that begin with the same blocks, and go on with (start, length) behind these."""
    head = list(range(NUM_BLOCKS, NUM_BLOCKS + blocks))
    return [
        AttentionSpan(span.start + blocks * BLOCK, span.length, [*head, *span.block_table])
        for span in spans_of(sizes)
    ]


class Pair:
    """The same KV memory twice: one read through the fake, one by the reference.

    The contexts before the spans hold random rows, what follows in their blocks zeros, and all
    blocks that no span names NaN. ``fp8``: the fake reads K and V in fp8; the reference's are in
    ``dtype``, and rounded to what fp8 can be.
    """

    def __init__(
        self,
        spans: Sequence[AttentionSpan],
        *,
        group: int = 2,
        layers: int = 1,
        dtype: torch.dtype = torch.float32,
        fp8: bool = False,
    ) -> None:
        self.spans = spans
        self.group = group
        self.dtype = dtype
        self.fake: FakeFlashInfer = make_fake()
        self.random = torch.Generator().manual_seed(3)
        mine, other = (
            KVMemory(layers, NUM_BLOCKS + 30, BLOCK, KV_HEADS, HEAD_DIM, kept)
            for kept in (torch.float8_e4m3fn if fp8 else dtype, dtype)
        )
        named = {block for span in spans for block in span.block_table}
        unnamed = [block for block in range(mine.num_blocks) if block not in named]
        for layer in range(layers):
            filled = self.draw(mine.num_blocks, 2, BLOCK, KV_HEADS)
            if fp8:
                filled = as_fp8(filled)
            filled[unnamed] = float("nan")
            for span in spans:
                first, row = divmod(span.start, BLOCK)
                filled[list(span.block_table[first:]), :, row:] = 0
                filled[list(span.block_table[first + 1 :])] = 0
            mine.layers[layer].copy_(filled)
            other.layers[layer].copy_(filled)
        self.memory, self.reference_memory = mine, other
        counted = CountedFake(self.fake, real_signatures())
        self.attention = FlashInferAttention(mine, group * KV_HEADS, counted, dtype=dtype)
        self.reference = RoundingAttention(other) if fp8 else TorchAttention(other)

    def draw(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, HEAD_DIM, generator=self.random).to(self.dtype)

    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values that lie as in one fused projection: not contiguous."""
        tokens = sum(span.length for span in self.spans)
        heads = self.group * KV_HEADS
        fused = self.draw(tokens, heads + 2 * KV_HEADS)
        return fused[:, :heads], fused[:, heads : heads + KV_HEADS], fused[:, heads + KV_HEADS :]

    def check(self, **variant: Any) -> None:
        """One layer of one step, both ways."""
        given_tensors = self.inputs()
        mine = self.attention.plan(self.spans).attend(0, *given_tensors, **variant)
        reference = self.reference.plan(self.spans).attend(0, *given_tensors, **variant)
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5)
        self.check_memory()

    def check_memory(self) -> None:
        for mine, other in zip(self.memory.layers, self.reference_memory.layers, strict=True):
            written = mine.to(other.dtype)
            assert torch.equal(written.nan_to_num(7.0), other.nan_to_num(7.0))
