"""A step's page metadata, as FlashInfer's kernels take it: which pages are read and written.

A page is a block. All arrays are int32 and contiguous: FlashInfer takes others without a word and
computes nonsense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from radix_engine.attention.interface import AttentionSpan

IntArray = npt.NDArray[np.int32]

# Below so many shared tokens, reading them once for all spans costs more than it saves.
CASCADE_TOKENS = 256
# Columns of the tables that are compared first, to find out soon that nothing is shared.
_FIRST_COLUMNS = 16


@dataclass(frozen=True, slots=True)
class PageReads:
    """Which queries read which pages.

    Group i has the queries ``qo_indptr[i]`` up to ``qo_indptr[i + 1]`` of the step. They read the
    pages ``kv_indices[kv_indptr[i] : kv_indptr[i + 1]]``, of the last one the first
    ``last_page_len[i]`` rows. Raises ValueError for an array that is not int32 or not contiguous.
    """

    qo_indptr: IntArray
    kv_indptr: IntArray
    kv_indices: IntArray
    last_page_len: IntArray

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray) and not (
                value.dtype == np.int32 and value.ndim == 1 and value.flags.c_contiguous
            ):
                raise ValueError(f"{field.name} must be a contiguous row of int32, not {value!r}")


@dataclass(frozen=True, slots=True)
class StepPages(PageReads):
    """What a step reads, one group a span, and where it writes.

    Token t of the step belongs to span ``batch_indices[t]`` and is written at position
    ``positions[t]`` of that span's pages, which hold ``block_size`` tokens each.
    """

    batch_indices: IntArray
    positions: IntArray
    block_size: int

    @property
    def num_spans(self) -> int:
        return len(self.last_page_len)

    @property
    def num_tokens(self) -> int:
        return len(self.positions)

    @property
    def decode_only(self) -> bool:
        """Whether every span is of one token."""
        return self.num_tokens == self.num_spans

    @property
    def lengths(self) -> IntArray:
        """The tokens of each span, [spans]."""
        return np.diff(self.qo_indptr)

    @property
    def contexts(self) -> IntArray:
        """What the last query of each span sees, [spans], in tokens."""
        return (np.diff(self.kv_indptr) - np.int32(1)) * np.int32(
            self.block_size
        ) + self.last_page_len

    @property
    def starts(self) -> IntArray:
        """The position of each span's first query, [spans]."""
        return self.contexts - self.lengths


def step_pages(spans: Sequence[AttentionSpan], block_size: int, num_blocks: int) -> StepPages:
    """The metadata of a step over blocks 0 to ``num_blocks - 1`` of ``block_size`` tokens.

    Raises ValueError for no spans, an empty span, and a block table that is too short or names
    blocks that do not exist. Cost: about a microsecond a span, and numpy's over pages and tokens.
    """
    count = len(spans)
    if not count:
        raise ValueError("a step needs at least one span")
    starts = np.fromiter((span.start for span in spans), np.int64, count)
    lengths = np.fromiter((span.length for span in spans), np.int64, count)
    if lengths.min() < 1 or starts.min() < 0:
        wrong = spans[int(((lengths < 1) | (starts < 0)).argmax())]
        raise ValueError(f"a span needs a token and a start of 0 or more, not {wrong}")
    contexts = starts + lengths
    needed = -(-contexts // block_size)
    qo_indptr = _indptr(lengths)
    if int(qo_indptr[-1]) == count:
        positions = starts
    else:
        tokens = np.arange(qo_indptr[-1])
        positions = tokens + np.repeat(starts - qo_indptr[:-1], lengths)
    return StepPages(
        qo_indptr=qo_indptr,
        kv_indptr=_indptr(needed),
        kv_indices=_indices(spans, needed, block_size, num_blocks),
        last_page_len=(contexts - (needed - 1) * block_size).astype(np.int32),
        batch_indices=np.repeat(np.arange(count, dtype=np.int32), lengths),
        positions=positions.astype(np.int32),
        block_size=block_size,
    )


def shared_pages(pages: StepPages, at_least: int = CASCADE_TOKENS) -> int:
    """How many leading pages all spans share, where reading them once for all of them pays.

    They lie wholly before every span's first query. 0 for a single span, and where fewer than
    ``at_least`` tokens are shared. Cost: linear in what is shared, times the spans.
    """
    limit = int(pages.starts.min()) // pages.block_size
    if pages.num_spans < 2 or limit * pages.block_size < at_least:
        return 0
    first_pages = pages.kv_indptr[:-1, None]
    shared, columns = 0, _FIRST_COLUMNS
    while shared < limit:
        compared = np.arange(shared, min(shared + columns, limit), dtype=np.int32)
        same = pages.kv_indices[first_pages + compared] == pages.kv_indices[compared]
        alike = same.all(axis=0)
        if not alike.all():
            shared += int(alike.argmin())
            break
        shared += len(compared)
        columns *= 2
    return shared if shared * pages.block_size >= at_least else 0


def split_levels(pages: StepPages, shared: int) -> tuple[PageReads, PageReads]:
    """The two levels of a cascade: the ``shared`` leading pages, read by all queries as one group,
    and each span's own pages behind them.

    Raises ValueError unless ``shared`` pages lie before every span's first query. That all spans
    share them is the caller's to know (`shared_pages`). Cost: linear in the pages.
    """
    limit = int(pages.starts.min()) // pages.block_size
    if not 1 <= shared <= limit:
        raise ValueError(f"from 1 to {limit} pages lie before every query, not {shared}")
    common = PageReads(
        qo_indptr=np.array([0, pages.num_tokens], dtype=np.int32),
        kv_indptr=np.array([0, shared], dtype=np.int32),
        kv_indices=pages.kv_indices[:shared],
        last_page_len=np.array([pages.block_size], dtype=np.int32),
    )
    own = np.ones(len(pages.kv_indices), dtype=np.bool_)
    own[pages.kv_indptr[:-1, None] + np.arange(shared)] = False
    dropped = np.arange(pages.num_spans + 1, dtype=np.int32) * np.int32(shared)
    return common, PageReads(
        qo_indptr=pages.qo_indptr,
        kv_indptr=pages.kv_indptr - dropped,
        kv_indices=pages.kv_indices[own],
        last_page_len=pages.last_page_len,
    )


def _indptr(counts: npt.NDArray[np.int64]) -> IntArray:
    """Where each group begins, and the last one ends: [groups + 1], from 0 on."""
    result = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=result[1:])
    return result


def _indices(
    spans: Sequence[AttentionSpan],
    needed: npt.NDArray[np.int64],
    block_size: int,
    num_blocks: int,
) -> IntArray:
    """The first ``needed`` blocks of each span's table, one after another."""
    tables = []
    for span, pages in zip(spans, needed.tolist(), strict=True):
        if len(span.block_table) < pages:
            raise ValueError(
                f"a context of {span.context} tokens needs {pages} blocks of {block_size}, "
                f"but the block table names {len(span.block_table)}"
            )
        tables.append(np.asarray(span.block_table)[:pages])
    # A copy: a table that is a buffer could not grow as long as somebody looks at it.
    indices = np.concatenate(tables)
    if indices.min() < 0 or indices.max() >= num_blocks:
        raise ValueError(f"a block table names blocks outside 0 to {num_blocks - 1}")
    return indices.astype(np.int32, casting="same_kind", copy=False)
