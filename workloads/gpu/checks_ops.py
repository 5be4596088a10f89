"""FlashInfer's operations against plain torch in float32 on the CPU.

Both get the same inputs, rounded to the model's dtype. What is not initialised is NaN, and so are
all blocks of K and V that no span names, so a result that was not written, or reads what it must
not, is no number. K and V are kept in that dtype, then in fp8, where tensor cores take a NaN for
480: that is far off, too. The reference has the same K and V, rounded to fp8.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.interface import AttentionSpan
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.gpu.ops import FlashInferOps, TorchOps
from radix_engine.memory.fp8 import FP8, FP8_MAX
from radix_engine.memory.kv_memory import KVMemory
from workloads.gpu.outcomes import EXACT, Check, Tolerance, compare
from workloads.gpu.shapes import HeadShape, llama_shape

PART = "ops"
OPS_TOLERANCE = {
    # One step of bf16 (8 bits), where computing in float32 leaves half of one.
    torch.bfloat16: Tolerance(2**-10, 2**-7),
    torch.float32: Tolerance(1e-5, 1e-5),
}
ATTENTION_TOLERANCE = {
    # Weights of the softmax, partial results and the result are rounded to 8 bits each, of values
    # up to about 5.
    torch.bfloat16: Tolerance(0.02, 2**-6),
    torch.float32: Tolerance(1e-4, 1e-4),
}
BLOCK = 16
SHARED_BLOCKS = 16  # 256 tokens, from which on a cascade is used
WINDOW = 50

DECODES = ((0, 1), (1, 1), (14, 1), (15, 1), (16, 1), (99, 1), (332, 1), (1999, 1))
MIXED = ((0, 20), (0, 1), (33, 1), (16, 7), (47, 2), (95, 1), (70, 300))
"""Spans (start, length)."""

_EPS = 1e-5
_CPU = torch.device("cpu")
_PEAKED = 3.0  # queries so large that few keys decide: one that is missing is then seen
_BEYOND_FP8 = 200.0  # times a normal number: one in 40 is more than fp8 can be


def check_ops(
    flashinfer: Any,
    device: torch.device,
    dtype: torch.dtype,
    shape: HeadShape,
    seed: int,
    *,
    windows: bool = False,
) -> list[Check]:
    """Check each operation, attention with K and V in fp8 too. ``windows``: attention with a
    window, whose kernels are others, to be compiled first."""
    bench = _Bench(flashinfer, device, dtype, shape, torch.Generator().manual_seed(seed))
    with uninitialised_is_nan():
        checks = [check for tokens in (1, 131) for check in bench.between(tokens)]
        for fp8 in (False, True):
            checks.append(bench.append(fp8=fp8))
            checks += [bench.attention(*case, fp8=fp8) for case in _cases(windows and not fp8)]
    return checks


def _cases(windows: bool) -> list[tuple[str, list[AttentionSpan], int | None]]:
    cases: list[tuple[str, list[AttentionSpan], int | None]] = [
        ("decode", spans_of(DECODES), None),
        ("prefill", spans_of(MIXED), None),
        ("cascade, decode", spans_of(DECODES, SHARED_BLOCKS), None),
        ("cascade, prefill", spans_of(MIXED, SHARED_BLOCKS), None),
    ]
    if windows:
        cases.append(("decode with a window", spans_of(DECODES), WINDOW))
        cases.append(("prefill with a window", spans_of(MIXED), WINDOW))
    return cases


def spans_of(sizes: Sequence[tuple[int, int]], shared: int = 0) -> list[AttentionSpan]:
    """Spans (start, length) behind ``shared`` blocks that all have in common.

    Blocks of their own are those from ``shared`` on, in an order that is not theirs.
    """
    needed = [-(-(start + length) // BLOCK) for start, length in sizes]
    ids = iter(range(shared + sum(needed) - 1, shared - 1, -1))
    return [
        AttentionSpan(
            start + shared * BLOCK, length, [*range(shared), *(next(ids) for _ in range(count))]
        )
        for (start, length), count in zip(sizes, needed, strict=True)
    ]


@contextlib.contextmanager
def uninitialised_is_nan() -> Iterator[None]:
    """Let torch fill what `torch.empty` and its like return with NaN, on any device."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of operations that have no deterministic form
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warn_only)


@dataclass(frozen=True, slots=True)
class _Bench:
    flashinfer: Any
    device: torch.device
    dtype: torch.dtype
    shape: HeadShape
    generator: torch.Generator

    def draw(self, *size: int, scale: float = 1.0) -> torch.Tensor:
        """On the CPU, already rounded to the dtype."""
        return (torch.randn(size, generator=self.generator) * scale).to(self.dtype)

    def compare(self, name: str, found: torch.Tensor, expected: torch.Tensor) -> Check:
        return compare(PART, f"{name}, {self.shape}", found, expected, OPS_TOLERANCE[self.dtype])

    @torch.inference_mode()
    def between(self, tokens: int) -> list[Check]:
        """The operations between products and attention, on so many rows."""
        shape, device = self.shape, self.device
        ops, reference = FlashInferOps(self.flashinfer), TorchOps()
        hidden = shape.num_heads * shape.head_dim
        rows = f"{tokens} row{'s' if tokens > 1 else ''}"
        x, residual, weight = (
            self.draw(tokens, hidden),
            self.draw(tokens, hidden),
            self.draw(hidden),
        )
        normed = ops.rms_norm(x.to(device), weight.to(device), _EPS)
        checks = [
            self.compare(
                f"rms norm, {rows}", normed, reference.rms_norm(x.float(), weight.float(), _EPS)
            )
        ]

        # Tensors of their own: these are overwritten.
        sums = residual.to(device, copy=True), residual.to(torch.float32, copy=True)
        added = x.to(device, copy=True)
        normed = ops.add_rms_norm(added, sums[0], weight.to(device), _EPS)
        expected = reference.add_rms_norm(x.float(), sums[1], weight.float(), _EPS)
        checks.append(self.compare(f"fused add norm, {rows}", normed, expected))
        checks.append(self.compare(f"fused add norm's sum, {rows}", *sums))

        heads, weight = self._heads(tokens), self.draw(shape.head_dim)
        queries = slice(None), slice(shape.num_heads)
        normed = ops.rms_norm(heads.to(device)[queries], weight.to(device), _EPS)
        expected = reference.rms_norm(heads.float()[queries], weight.float(), _EPS)
        checks.append(self.compare(f"norm per head, {rows}", normed, expected))

        both = self.draw(tokens, 2 * shape.inner)
        product = ops.silu_and_mul(both.to(device))
        checks.append(
            self.compare(f"silu and mul, {rows}", product, reference.silu_and_mul(both.float()))
        )
        return [*checks, *self._rotation(tokens, rows)]

    def _heads(self, tokens: int) -> torch.Tensor:
        """Queries, keys and values as one projection yields them."""
        shape = self.shape
        return self.draw(tokens, shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim)

    def _rotation(self, tokens: int, rows: str) -> list[Check]:
        shape = self.shape
        config = llama_shape(
            num_layers=1,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            context_length=16384,
        )
        positions = torch.randint(
            config.context_length, (tokens,), generator=self.generator, dtype=torch.int32
        )
        positions[0], positions[-1] = 0, config.context_length - 1
        key_end = shape.num_heads + shape.num_kv_heads
        heads = self._heads(tokens)
        found = heads.to(self.device, copy=True)
        expected = heads.to(torch.float32, copy=True)
        for ops, rotated in (
            (FlashInferOps(self.flashinfer), found),
            (TorchOps(), expected),
        ):
            rotate = ops.rope(config, rotated.device)
            parts = rotated[:, : shape.num_heads], rotated[:, shape.num_heads : key_end]
            rotate(*parts, positions.to(rotated.device))
        untouched = f"values beside a rotation, {rows}, {shape}"
        return [
            self.compare(f"rotation, {rows}", found[:, :key_end], expected[:, :key_end]),
            compare(PART, untouched, found[:, key_end:], heads[:, key_end:], EXACT),
        ]

    @torch.inference_mode()
    def append(self, *, fp8: bool) -> Check:
        """K and V are written to their rows, all bits of them, and to no others."""
        spans = spans_of(MIXED)
        found = self._memory(spans, FP8 if fp8 else self.dtype, self.device)
        expected = self._memory(spans, torch.float32, _CPU)
        for memory in (found, expected):
            memory.layers[0].fill_(float("nan"))
        heads = self._heads(sum(span.length for span in spans))
        if fp8:
            heads *= _BEYOND_FP8
        _, keys, values = self._split(heads.to(self.device))
        self._attention(found).plan(spans).write(0, keys, values)
        _, keys, values = self._split(_in_fp8(heads) if fp8 else heads.float())
        TorchAttention(expected).plan(spans).write(0, keys, values)
        # No value is as large as what stands for NaN.
        rows, right = (m.layers[0].cpu().float().nan_to_num(1000.0) for m in (found, expected))
        return compare(PART, self._named("append", fp8), rows, right, EXACT)

    @torch.inference_mode()
    def attention(
        self, name: str, spans: Sequence[AttentionSpan], window: int | None, *, fp8: bool
    ) -> Check:
        """One layer of a step: what it returns."""
        found = self._memory(spans, FP8 if fp8 else self.dtype, self.device)
        expected = self._memory(spans, torch.float32, _CPU)
        filled = self._filled(spans, found.num_blocks)
        found.layers[0].copy_(filled)
        expected.layers[0].copy_(_in_fp8(filled) if fp8 else filled)
        heads = self._heads(sum(span.length for span in spans))
        heads[:, : self.shape.num_heads] *= _PEAKED
        attended = (
            self._attention(found)
            .plan(spans)
            .attend(0, *self._split(heads.to(self.device)), window=window)
        )
        queries, keys, values = self._split(heads.float())
        if fp8:
            keys, values = _in_fp8(keys), _in_fp8(values)
        plan = TorchAttention(expected).plan(spans)
        reference = plan.attend(0, queries, keys, values, window=window)
        tolerance = ATTENTION_TOLERANCE[self.dtype]
        return compare(PART, self._named(name, fp8), attended, reference, tolerance)

    def _named(self, name: str, fp8: bool) -> str:
        return f"{name}{', K and V in fp8' if fp8 else ''}, {self.shape}"

    def _attention(self, memory: KVMemory) -> FlashInferAttention:
        shape = self.shape
        return FlashInferAttention(memory, shape.num_heads, self.flashinfer, dtype=self.dtype)

    def _split(self, heads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        shape = self.shape
        queries, keys, values = torch.split(
            heads, [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1
        )
        return queries, keys, values

    def _memory(
        self, spans: Sequence[AttentionSpan], dtype: torch.dtype, device: torch.device
    ) -> KVMemory:
        """With a block more than the spans name."""
        blocks = 2 + max(block for span in spans for block in span.block_table)
        shape = self.shape
        return KVMemory(1, blocks, BLOCK, shape.num_kv_heads, shape.head_dim, dtype, device)

    def _filled(self, spans: Sequence[AttentionSpan], blocks: int) -> torch.Tensor:
        """Random K and V before the spans, 0 behind in their blocks, NaN in all other blocks."""
        shape = self.shape
        filled = self.draw(blocks, 2, BLOCK, shape.num_kv_heads, shape.head_dim)
        named = {block for span in spans for block in span.block_table}
        filled[[block for block in range(blocks) if block not in named]] = float("nan")
        for span in spans:
            first, row = divmod(span.start, BLOCK)
            filled[list(span.block_table[first:]), :, row:] = 0
            filled[list(span.block_table[first + 1 :])] = 0
        return filled


def _in_fp8(values: torch.Tensor) -> torch.Tensor:
    """What is left of them in fp8, in float32."""
    return values.float().clamp(-FP8_MAX, FP8_MAX).to(FP8).float()
