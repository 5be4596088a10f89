"""What the queries of one step read: rows to gather, masks, and what is computed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from radix_engine.attention.grouping import group_decodes
from radix_engine.attention.interface import AttentionSpan
from radix_engine.memory.kv_memory import KVMemory

# A chunk behind cached tokens is cut into tiles of this many queries, each of which sees the keys
# up to its own end: the masked half of a long chunk is then not computed.
_TILE = 256

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tile:
    """Queries ``first`` up to ``last`` of the step, over the gathered rows ``low`` up to ``high``.

    Either ``causal``, or with a ``mask`` [queries, rows].
    """

    first: int
    last: int
    low: int
    high: int
    mask: torch.Tensor | None
    causal: bool


@dataclass(frozen=True, slots=True)
class Prefill:
    """One sequence with several queries. ``rows`` [2 * gathered]: its K rows, then its V rows."""

    rows: torch.Tensor
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Decodes:
    """Sequences with one query each, padded to a common context.

    ``queries`` [sequences]: indices into the step's tokens; ``rows`` [2 * sequences * context].
    """

    queries: torch.Tensor
    rows: torch.Tensor
    context: int
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class StepView:
    """All that a step reads in a layer with one window."""

    prefills: tuple[Prefill, ...]
    decodes: tuple[Decodes, ...]


def view_step(
    spans: Sequence[AttentionSpan], rows: Sequence[Rows], window: int | None, memory: KVMemory
) -> StepView:
    """Plan what is read under ``window``. ``rows``: the K rows of each span's whole context.

    Cost: linear in what is read (8 bytes of index a row).
    """
    return _Viewer(memory, window).view(spans, rows)


@dataclass(frozen=True, slots=True)
class _Viewer:
    memory: KVMemory
    window: int | None

    def view(self, spans: Sequence[AttentionSpan], rows: Sequence[Rows]) -> StepView:
        first_query = np.cumsum([0, *(span.length for span in spans)]).tolist()
        prefills = tuple(
            self._prefill(span, first_query[i], rows[i])
            for i, span in enumerate(spans)
            if span.length > 1
        )
        decodes = [i for i, span in enumerate(spans) if span.length == 1]
        seen = [rows[i][self._first_seen(spans[i].start) :] for i in decodes]
        groups = group_decodes([len(r) for r in seen])
        return StepView(
            prefills,
            tuple(
                self._decodes([first_query[decodes[j]] for j in group], [seen[j] for j in group])
                for group in groups
            ),
        )

    def _first_seen(self, position: int) -> int:
        """The first position that a query sees."""
        return 0 if self.window is None else max(0, position - self.window + 1)

    def _prefill(self, span: AttentionSpan, first: int, rows: Rows) -> Prefill:
        lowest = self._first_seen(span.start)
        if span.start == 0 and self._first_seen(span.length - 1) == 0:
            tiles = [Tile(first, first + span.length, 0, span.length, None, causal=True)]
        else:
            tiles = []
            for begin in range(span.start, span.context, _TILE):
                end = min(begin + _TILE, span.context)
                low = self._first_seen(begin)
                before = first - span.start
                mask = self._causal_mask(begin, end, low)
                tiles.append(
                    Tile(before + begin, before + end, low - lowest, end - lowest, mask, False)
                )
        return Prefill(self._tensor(self._with_values(rows[lowest:])), tuple(tiles))

    def _decodes(self, queries: list[int], rows: list[Rows]) -> Decodes:
        lengths = np.array([len(r) for r in rows])
        context = int(lengths.max())
        # Padding repeats the sequence's own first row: whatever unused blocks hold, NaN included,
        # cannot reach the result, as a masked row has the weight 0 but 0 times NaN is NaN.
        padded = np.stack([np.pad(r, (0, context - len(r)), constant_values=r[0]) for r in rows])
        mask = None
        if lengths.min() < context:
            hidden = np.arange(context)[None, :] >= lengths[:, None]
            mask = self._as_mask(torch.from_numpy(hidden))[:, None, None, :]
        return Decodes(
            self._tensor(np.array(queries)),
            self._tensor(self._with_values(padded.reshape(-1))),
            context,
            mask,
        )

    def _with_values(self, rows: Rows) -> Rows:
        return np.concatenate((rows, rows + self.memory.block_size))

    def _causal_mask(self, begin: int, end: int, low: int) -> torch.Tensor:
        """[end - begin, end - low]: queries at ``begin`` up to ``end`` over keys from ``low``."""
        keys = np.arange(low, end)[None, :]
        queries = np.arange(begin, end)[:, None]
        hidden = keys > queries
        if self.window is not None:
            hidden |= keys <= queries - self.window
        return self._as_mask(torch.from_numpy(hidden))

    def _as_mask(self, hidden: torch.Tensor) -> torch.Tensor:
        # Added to the scores. A bool mask would be turned into this again in every layer.
        hidden = hidden.to(self.memory.device)
        mask = torch.zeros(hidden.shape, dtype=self.memory.dtype, device=self.memory.device)
        return mask.masked_fill_(hidden, float("-inf"))

    def _tensor(self, values: npt.NDArray[np.int_]) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int64, copy=False)).to(self.memory.device)
