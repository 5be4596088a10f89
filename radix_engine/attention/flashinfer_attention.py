"""Attention over KV blocks by FlashInfer's kernels.

A step appends its K and V to their blocks, then attends over each request's whole context: by the
decode kernels where every span has one query, by one causal prefill otherwise. Where all spans
begin with the same blocks, these are read once for all of them (a cascade).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from radix_engine.attention.flashinfer_pages import (
    StepPages,
    shared_pages,
    split_levels,
    step_pages,
)
from radix_engine.attention.flashinfer_wrappers import (
    KV_LAYOUT,
    Heads,
    PlacedReads,
    Run,
    Scores,
    WrapperSet,
    place,
    place_reads,
)
from radix_engine.attention.interface import AttentionSpan
from radix_engine.memory.fp8 import FP8
from radix_engine.memory.kv_memory import KVMemory, zeroed_memory

HEAD_DIMS = (64, 128, 256)
DTYPES = (torch.bfloat16, torch.float16)


class FlashInferAttention:
    """Attention over ``memory`` with the kernels of ``flashinfer``, the imported package.

    ``num_heads`` query heads share the KV heads of every layer. ``dtype`` is that of a step's
    tensors (None: the memory's); a memory in `FP8` takes K and V of it rounded. Steps are computed
    on the current stream, by one thread. Of two plans the second may be made while the first one's
    step runs; one made before both is void, and says so.

    Takes ``workspace_bytes`` of the device's memory, and 8 MiB for each wrapper: two for each
    window, scale and soft cap of the model, and kind of step. What is in ``workspace`` counts while
    a layer's attention runs and not after: whatever runs on the same stream may share it. Raises
    ValueError for a memory that the kernels cannot read.
    """

    def __init__(
        self,
        memory: KVMemory,
        num_heads: int,
        flashinfer: Any,
        *,
        dtype: torch.dtype | None = None,
        workspace_bytes: int = 256 * 2**20,
    ) -> None:
        self.memory = memory
        self.heads = _heads(memory, num_heads, memory.dtype if dtype is None else dtype)
        self.flashinfer = flashinfer
        self.workspace = zeroed_memory((workspace_bytes,), torch.uint8, memory.layers[0].device)
        self._set = WrapperSet(flashinfer, self.heads, self.workspace)
        self._other_set = WrapperSet(flashinfer, self.heads, self.workspace)

    def plan(self, spans: Sequence[AttentionSpan]) -> FlashInferPlan:
        """Prepare a step. Cost: a microsecond a span, and 4 bytes copied to the device a block."""
        pages = step_pages(spans, self.memory.block_size, self.memory.num_blocks)
        self._set, self._other_set = self._other_set, self._set
        return FlashInferPlan(self, pages, self._set)


class FlashInferPlan:
    """One step's attention. Layers with the same window, scale and soft cap share what is planned.

    Raises RuntimeError when it is used after two others were made.
    """

    def __init__(
        self, attention: FlashInferAttention, pages: StepPages, wrappers: WrapperSet
    ) -> None:
        self._memory = attention.memory
        self._heads = attention.heads
        self._append = attention.flashinfer.append_paged_kv_cache
        self._device = attention.memory.layers[0].device
        self._pages = pages
        self._longest = int(pages.contexts.max())
        self._wrappers = wrappers
        self._step = wrappers.take()
        self._runs: dict[Scores, Run] = {}
        heads = self._heads
        self._query_shape = (pages.num_tokens, heads.num_heads, heads.head_dim)
        self._key_shape = (pages.num_tokens, heads.num_kv_heads, heads.head_dim)
        host, moved = place(
            [
                pages.qo_indptr,
                pages.kv_indptr,
                pages.kv_indices,
                pages.last_page_len,
                pages.batch_indices,
                pages.positions,
            ],
            self._device,
        )
        self._reads = PlacedReads(host[0], host[1], moved[2], host[3])
        _, self._kv_indptr, self._kv_indices, self._last_page_len, *written = moved
        self._batch_indices, self._positions = written

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """See `AttentionPlan.attend`.

        Raises ValueError for tensors of another shape, dtype or device than planned, or whose last
        dimension is not contiguous: the kernels would read them all the same.
        """
        scores = self._scores(scale, window, softcap)
        self._check("queries", queries, self._query_shape)
        if self._wrappers.step != self._step:
            raise RuntimeError("this plan is void: two more have been made since")
        if scores not in self._runs:
            self._runs[scores] = self._plan(scores)
        self.write(layer, keys, values)
        return self._runs[scores](queries, self._memory.layers[layer])

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """See `AttentionPlan.write`. Raises ValueError as ``attend`` does."""
        self._check("keys", keys, self._key_shape)
        self._check("values", values, self._key_shape)
        self._append(
            *self._heads.stored(keys, values),
            self._batch_indices,
            self._positions,
            self._memory.layers[layer],
            self._kv_indices,
            self._kv_indptr,
            self._last_page_len,
            kv_layout=KV_LAYOUT,
        )

    def _plan(self, scores: Scores) -> Run:
        pages = self._pages
        if scores.window is None and scores.softcap is None and self._heads.mergeable:
            shared = shared_pages(pages)
            if shared:
                levels = place_reads(list(split_levels(pages, shared)), self._device)
                return self._wrappers.cascade(scores, levels)
        if pages.decode_only:
            return self._wrappers.decode(scores, self._reads)
        return self._wrappers.prefill(scores, self._reads, int(pages.lengths.max()))

    def _scores(self, scale: float | None, window: int | None, softcap: float | None) -> Scores:
        if softcap is not None and not softcap > 0:
            raise ValueError(f"a soft cap must be above 0, not {softcap}")
        if window is not None:
            if window < 1:
                raise ValueError(f"a window must be of at least 1 token, not {window}")
            if window >= self._longest:
                window = None  # it hides nothing
        scale = self._heads.head_dim**-0.5 if scale is None else float(scale)
        return Scores(scale, window, None if softcap is None else float(softcap))

    def _check(self, name: str, tensor: torch.Tensor, shape: tuple[int, int, int]) -> None:
        if (
            tensor.shape != shape
            or tensor.dtype != self._heads.dtype
            or tensor.device != self._device
            or tensor.stride(-1) != 1
        ):
            raise ValueError(
                f"{name} must be {shape}, {self._heads.dtype}, on {self._device} and contiguous "
                f"in the last dimension, not {tuple(tensor.shape)}, {tensor.dtype}, on "
                f"{tensor.device} with strides {tensor.stride()}"
            )


def _heads(memory: KVMemory, num_heads: int, dtype: torch.dtype) -> Heads:
    """What the layers have in common. Raises ValueError where FlashInfer's kernels cannot."""
    shapes = {tuple(layer.shape[3:]) for layer in memory.layers}
    if len(shapes) > 1:
        raise ValueError(
            f"FlashInfer's attention needs layers of one shape, not (KV heads, head_dim) of "
            f"{sorted(shapes)}: use --attention torch"
        )
    ((num_kv_heads, head_dim),) = shapes
    if head_dim not in HEAD_DIMS:
        raise ValueError(
            f"FlashInfer's attention takes head dimensions of 64, 128 and 256, not {head_dim}: "
            "use --attention torch"
        )
    # What stands in for FlashInfer on a CPU computes in float32 too.
    on_cpu = memory.layers[0].device.type == "cpu"
    if dtype not in DTYPES and not (on_cpu and dtype == torch.float32):
        raise ValueError(
            f"FlashInfer's attention takes bfloat16 and float16, not {dtype}: use --dtype bf16"
        )
    if memory.dtype not in (dtype, FP8):
        raise ValueError(
            f"FlashInfer's attention of {dtype} takes K and V in that or in {FP8}, not in "
            f"{memory.dtype}: use --kv-dtype auto or fp8"
        )
    if num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(
            f"FlashInfer's attention needs query heads that are a multiple of the KV heads, not "
            f"{num_heads} and {num_kv_heads}: look at num_attention_heads and num_key_value_heads "
            "in the model's config.json"
        )
    fp8 = memory.dtype == FP8
    return Heads(num_heads, num_kv_heads, head_dim, memory.block_size, dtype, fp8)
