"""Attention over KV blocks in plain torch: the reference for every other implementation.

The rows of a context are gathered into one contiguous piece, then torch's fused attention runs on
it. The query heads that share a KV head are never multiplied out: for one query per sequence they
become rows of that head, for several they become the batch dimension over a repeated (not copied)
K and V.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from radix_engine.attention.grouping import group_decodes
from radix_engine.attention.interface import AttentionSpan
from radix_engine.memory.kv_memory import KVMemory

# A chunk behind cached tokens is cut into tiles of this many queries, each of which sees the keys
# up to its own end: the masked half of a long chunk is then not computed.
_TILE = 256

_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Tile:
    """Queries ``first`` up to ``last`` of the step, over the first ``context`` gathered rows."""

    first: int
    last: int
    context: int
    mask: torch.Tensor | None
    causal: bool


@dataclass(frozen=True, slots=True)
class _Prefill:
    """One sequence with several queries. ``rows`` [2 * context]: its K rows, then its V rows."""

    rows: torch.Tensor
    tiles: tuple[_Tile, ...]


@dataclass(frozen=True, slots=True)
class _Decodes:
    """Sequences with one query each, padded to a common context.

    ``queries`` [sequences]: indices into the step's tokens; ``rows`` [2 * sequences * context].
    """

    queries: torch.Tensor
    rows: torch.Tensor
    context: int
    mask: torch.Tensor | None


class TorchAttention:
    """Attention over ``memory`` with torch's own kernels, on any device."""

    def __init__(self, memory: KVMemory) -> None:
        self.memory = memory

    def plan(self, spans: Sequence[AttentionSpan]) -> TorchPlan:
        """Prepare a step. Cost: linear in the tokens of all contexts (8 bytes of index each)."""
        memory = self.memory
        rows = [_context_rows(span, memory) for span in spans]
        written = [r[span.start :] for span, r in zip(spans, rows, strict=True)]
        first_query = np.cumsum([0, *(span.length for span in spans)]).tolist()
        decodes = [i for i, span in enumerate(spans) if span.length == 1]
        prefills = [
            self._plan_prefill(span, first_query[i], rows[i])
            for i, span in enumerate(spans)
            if span.length > 1
        ]
        groups = [
            self._plan_decodes(
                [first_query[decodes[j]] for j in group], [rows[decodes[j]] for j in group]
            )
            for group in group_decodes([spans[i].context for i in decodes])
        ]
        return TorchPlan(
            memory,
            self._tensor(np.concatenate(written)),
            tuple(prefills),
            tuple(groups),
        )

    def _plan_prefill(self, span: AttentionSpan, first: int, rows: _Rows) -> _Prefill:
        if span.start == 0:
            tiles = [_Tile(first, first + span.length, span.length, None, causal=True)]
        else:
            tiles = []
            for begin in range(0, span.length, _TILE):
                end = min(begin + _TILE, span.length)
                context = span.start + end
                mask = self._causal_mask(end - begin, context)
                tiles.append(_Tile(first + begin, first + end, context, mask, causal=False))
        return _Prefill(self._tensor(self._with_values(rows)), tuple(tiles))

    def _plan_decodes(self, queries: list[int], rows: list[_Rows]) -> _Decodes:
        lengths = np.array([len(r) for r in rows])
        context = int(lengths.max())
        # Padding repeats the sequence's own first row: whatever unused blocks hold, NaN included,
        # cannot reach the result, as a masked row has the weight 0 but 0 times NaN is NaN.
        padded = np.stack([np.pad(r, (0, context - len(r)), constant_values=r[0]) for r in rows])
        mask = None
        if lengths.min() < context:
            hidden = np.arange(context)[None, :] >= lengths[:, None]
            mask = self._as_mask(torch.from_numpy(hidden))[:, None, None, :]
        return _Decodes(
            self._tensor(np.array(queries)),
            self._tensor(self._with_values(padded.reshape(-1))),
            context,
            mask,
        )

    def _with_values(self, rows: _Rows) -> _Rows:
        return np.concatenate((rows, rows + self.memory.block_size))

    def _causal_mask(self, queries: int, context: int) -> torch.Tensor:
        """[queries, context]: the last query sees all rows, the one before all but one, ..."""
        keys = np.arange(context)[None, :]
        last_seen = np.arange(context - queries, context)[:, None]
        return self._as_mask(torch.from_numpy(keys > last_seen))

    def _as_mask(self, hidden: torch.Tensor) -> torch.Tensor:
        # Added to the scores. A bool mask would be turned into this again in every layer.
        hidden = hidden.to(self.memory.device)
        mask = torch.zeros(hidden.shape, dtype=self.memory.dtype, device=self.memory.device)
        return mask.masked_fill_(hidden, float("-inf"))

    def _tensor(self, values: npt.NDArray[np.int_]) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int64, copy=False)).to(self.memory.device)


class TorchPlan:
    """One step's attention, planned by ``TorchAttention``."""

    def __init__(
        self,
        memory: KVMemory,
        key_rows: torch.Tensor,
        prefills: tuple[_Prefill, ...],
        decodes: tuple[_Decodes, ...],
    ) -> None:
        self._memory = memory
        self._key_rows = key_rows
        self._value_rows = key_rows + memory.block_size
        self._prefills = prefills
        self._decodes = decodes

    def attend(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See ``AttentionPlan.attend``."""
        self.write(layer, keys, values)
        rows = self._memory.rows(layer)
        result = torch.empty_like(queries, memory_format=torch.contiguous_format)
        for prefill in self._prefills:
            _attend_prefill(prefill, rows, queries, result)
        for group in self._decodes:
            _attend_decodes(group, rows, queries, result)
        return result

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """See ``AttentionPlan.write``."""
        rows = self._memory.rows(layer)
        rows.index_copy_(0, self._key_rows, keys)
        rows.index_copy_(0, self._value_rows, values)


def _attend_prefill(
    plan: _Prefill, rows: torch.Tensor, queries: torch.Tensor, result: torch.Tensor
) -> None:
    _, kv_heads, head_dim = rows.shape
    group = queries.shape[1] // kv_heads
    gathered = rows.index_select(0, plan.rows).view(2, 1, -1, kv_heads, head_dim)
    # [2, group (repeated, not copied), kv_heads, context, head_dim]
    gathered = gathered.transpose(2, 3).expand(-1, group, -1, -1, -1)
    for tile in plan.tiles:
        count = tile.last - tile.first
        asked = queries[tile.first : tile.last].view(count, kv_heads, group, head_dim)
        seen = gathered[:, :, :, : tile.context]
        answer = F.scaled_dot_product_attention(
            asked.permute(2, 1, 0, 3),
            seen[0],
            seen[1],
            attn_mask=tile.mask,
            is_causal=tile.causal,
        )
        target = result[tile.first : tile.last].view(count, kv_heads, group, head_dim)
        target.copy_(answer.permute(2, 1, 0, 3))


def _attend_decodes(
    plan: _Decodes, rows: torch.Tensor, queries: torch.Tensor, result: torch.Tensor
) -> None:
    _, kv_heads, head_dim = rows.shape
    _, heads, _ = queries.shape
    count = plan.queries.shape[0]
    gathered = rows.index_select(0, plan.rows).view(2, count, plan.context, kv_heads, head_dim)
    gathered = gathered.transpose(2, 3)
    asked = queries.index_select(0, plan.queries)
    answer = F.scaled_dot_product_attention(
        asked.view(count, kv_heads, heads // kv_heads, head_dim),
        gathered[0],
        gathered[1],
        attn_mask=plan.mask,
    )
    result.index_copy_(0, plan.queries, answer.reshape(count, heads, head_dim))


def _context_rows(span: AttentionSpan, memory: KVMemory) -> _Rows:
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
