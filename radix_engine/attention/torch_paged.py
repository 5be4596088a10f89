"""Attention over KV blocks in plain torch: the reference for every other implementation.

The rows of a context are gathered into one contiguous piece, then torch's fused attention runs on
it. The query heads that share a KV head are never multiplied out: for one query per sequence they
become rows of that head, for several they become the batch dimension over a repeated (not copied)
K and V.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from radix_engine.attention.interface import AttentionSpan
from radix_engine.attention.scores import attend_dense
from radix_engine.attention.step_view import Decodes, Prefill, Rows, StepView, view_step
from radix_engine.memory.kv_memory import KVMemory


class TorchAttention:
    """Attention over ``memory`` with torch's own kernels, on any device."""

    def __init__(self, memory: KVMemory) -> None:
        self.memory = memory

    def plan(self, spans: Sequence[AttentionSpan]) -> TorchPlan:
        """Prepare a step. Cost: linear in the tokens of all contexts (8 bytes of index each)."""
        return TorchPlan(self.memory, spans)


class TorchPlan:
    """One step's attention over ``memory``. Layers with the same window share what is planned."""

    def __init__(self, memory: KVMemory, spans: Sequence[AttentionSpan]) -> None:
        self._memory = memory
        self._spans = spans
        self._rows = [_context_rows(span, memory) for span in spans]
        self._longest = max(span.context for span in spans)
        self._views: dict[int | None, StepView] = {}
        written = [r[span.start :] for span, r in zip(spans, self._rows, strict=True)]
        self._key_rows = torch.from_numpy(np.concatenate(written)).to(memory.device)
        self._value_rows = self._key_rows + memory.block_size

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
        """See `AttentionPlan.attend`."""
        if softcap is not None and not softcap > 0:
            raise ValueError(f"a soft cap must be above 0, not {softcap}")
        view = self._view(window)
        self.write(layer, keys, values)
        rows = self._memory.rows(layer)
        result = torch.empty_like(queries, memory_format=torch.contiguous_format)
        for prefill in view.prefills:
            _attend_prefill(prefill, rows, queries, result, scale, softcap)
        for group in view.decodes:
            _attend_decodes(group, rows, queries, result, scale, softcap)
        return result

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """See `AttentionPlan.write`."""
        rows = self._memory.rows(layer)
        rows.index_copy_(0, self._key_rows, keys)
        rows.index_copy_(0, self._value_rows, values)

    def _view(self, window: int | None) -> StepView:
        if window is not None:
            if window < 1:
                raise ValueError(f"a window must be of at least 1 token, not {window}")
            if window >= self._longest:
                window = None  # it hides nothing
        if window not in self._views:
            self._views[window] = view_step(self._spans, self._rows, window, self._memory)
        return self._views[window]


def _attend_prefill(
    plan: Prefill,
    rows: torch.Tensor,
    queries: torch.Tensor,
    result: torch.Tensor,
    scale: float | None,
    softcap: float | None,
) -> None:
    _, kv_heads, head_dim = rows.shape
    group = queries.shape[1] // kv_heads
    gathered = rows.index_select(0, plan.rows).view(2, 1, -1, kv_heads, head_dim)
    # [2, group (repeated, not copied), kv_heads, rows, head_dim]
    gathered = gathered.transpose(2, 3).expand(-1, group, -1, -1, -1)
    for tile in plan.tiles:
        count = tile.last - tile.first
        asked = queries[tile.first : tile.last].view(count, kv_heads, group, head_dim)
        seen = gathered[:, :, :, tile.low : tile.high]
        answer = attend_dense(
            asked.permute(2, 1, 0, 3),
            seen[0],
            seen[1],
            mask=tile.mask,
            causal=tile.causal,
            scale=scale,
            softcap=softcap,
        )
        target = result[tile.first : tile.last].view(count, kv_heads, group, head_dim)
        target.copy_(answer.permute(2, 1, 0, 3))


def _attend_decodes(
    plan: Decodes,
    rows: torch.Tensor,
    queries: torch.Tensor,
    result: torch.Tensor,
    scale: float | None,
    softcap: float | None,
) -> None:
    _, kv_heads, head_dim = rows.shape
    _, heads, _ = queries.shape
    count = plan.queries.shape[0]
    gathered = rows.index_select(0, plan.rows).view(2, count, plan.context, kv_heads, head_dim)
    gathered = gathered.transpose(2, 3)
    asked = queries.index_select(0, plan.queries)
    answer = attend_dense(
        asked.view(count, kv_heads, heads // kv_heads, head_dim),
        gathered[0],
        gathered[1],
        mask=plan.mask,
        scale=scale,
        softcap=softcap,
    )
    result.index_copy_(0, plan.queries, answer.reshape(count, heads, head_dim))


def _context_rows(span: AttentionSpan, memory: KVMemory) -> Rows:
    """The K rows of all positions of a span's context, in order."""
    block_size = memory.block_size
    needed = -(-span.context // block_size)
    table = np.asarray(span.block_table, dtype=np.int64)[:needed]
    if span.length < 1 or span.start < 0:
        raise ValueError(f"a span needs a token and a start of 0 or more, not {span}")
    if len(table) < needed:
        raise ValueError(
            f"a context of {span.context} tokens needs {needed} blocks of {block_size}, "
            f"but the block table names {len(table)}"
        )
    if table.min() < 0 or table.max() >= memory.num_blocks:
        raise ValueError(f"a block table names blocks outside 0 to {memory.num_blocks - 1}")
    rows = table[:, None] * (2 * block_size) + np.arange(block_size)
    return rows.reshape(-1)[: span.context]
