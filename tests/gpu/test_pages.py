"""A step's page metadata says exactly which rows are read and written."""

from __future__ import annotations

from array import array
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.attention.flashinfer_pages import (
    PageReads,
    StepPages,
    shared_pages,
    split_levels,
    step_pages,
)
from radix_engine.attention.interface import AttentionSpan

BLOCK = 4
NUM_BLOCKS = 400


@st.composite
def steps(draw: st.DrawFn, longest: int = 9) -> list[AttentionSpan]:
    """Spans over disjoint block tables, some of them longer than needed."""
    sizes = draw(
        st.lists(st.tuples(st.integers(0, 30), st.integers(1, longest)), min_size=1, max_size=8)
    )
    ids = draw(st.permutations(range(100)))
    spans, taken = [], 0
    for start, length in sizes:
        count = -(-(start + length) // BLOCK) + draw(st.integers(0, 2))
        spans.append(AttentionSpan(start, length, array("i", ids[taken : taken + count])))
        taken += count
    return spans


def decode(context: int, table: list[int]) -> AttentionSpan:
    return AttentionSpan(context - 1, 1, table)


def positions_read(reads: PageReads, block_size: int) -> list[list[tuple[int, int]]]:
    """The (page, row) pairs that each group reads, in order."""
    groups = []
    for i, last in enumerate(reads.last_page_len.tolist()):
        pages = reads.kv_indices[reads.kv_indptr[i] : reads.kv_indptr[i + 1]].tolist()
        rows = [(page, row) for page in pages for row in range(block_size)]
        groups.append(rows[: len(rows) - block_size + last])
    return groups


def rows_written(pages: StepPages) -> list[tuple[int, int]]:
    """The (page, row) pair of each token."""
    return [
        (int(pages.kv_indices[pages.kv_indptr[i] + at // pages.block_size]), at % pages.block_size)
        for i, at in zip(pages.batch_indices.tolist(), pages.positions.tolist(), strict=True)
    ]


def rows_of(span: AttentionSpan, first: int = 0) -> list[tuple[int, int]]:
    """The (page, row) pairs of a span's positions from ``first`` on."""
    return [(span.block_table[p // BLOCK], p % BLOCK) for p in range(first, span.context)]


def test_a_chunk_and_a_decode_by_hand() -> None:
    chunk = AttentionSpan(5, 3, [7, 2, 9])
    pages = step_pages([chunk, decode(1, [4])], BLOCK, 10)
    assert pages.qo_indptr.tolist() == [0, 3, 4]
    assert pages.kv_indptr.tolist() == [0, 2, 3]
    assert pages.kv_indices.tolist() == [7, 2, 4]
    assert pages.last_page_len.tolist() == [4, 1]
    assert pages.batch_indices.tolist() == [0, 0, 0, 1]
    assert pages.positions.tolist() == [5, 6, 7, 0]
    assert (pages.num_spans, pages.num_tokens, pages.decode_only) == (2, 4, False)
    assert pages.lengths.tolist() == [3, 1]
    assert pages.contexts.tolist() == [8, 1]
    assert pages.starts.tolist() == [5, 0]


def test_decodes_by_hand() -> None:
    pages = step_pages([decode(9, [3, 1, 6]), decode(4, [5, 8])], BLOCK, 10)
    assert pages.qo_indptr.tolist() == [0, 1, 2]
    assert pages.kv_indptr.tolist() == [0, 3, 4]
    assert pages.kv_indices.tolist() == [3, 1, 6, 5]
    assert pages.last_page_len.tolist() == [1, 4]
    assert pages.batch_indices.tolist() == [0, 1]
    assert pages.positions.tolist() == [8, 3]
    assert pages.decode_only


@settings(deadline=None)
@given(steps())
def test_each_span_reads_its_context_and_writes_its_own_positions(
    spans: list[AttentionSpan],
) -> None:
    pages = step_pages(spans, BLOCK, NUM_BLOCKS)
    assert positions_read(pages, BLOCK) == [rows_of(span) for span in spans]
    expected = [row for span in spans for row in rows_of(span, first=span.start)]
    assert rows_written(pages) == expected


@settings(deadline=None)
@given(steps())
def test_offsets_rise_from_0_and_give_the_lengths_of_the_spans(spans: list[AttentionSpan]) -> None:
    pages = step_pages(spans, BLOCK, NUM_BLOCKS)
    assert pages.qo_indptr[0] == pages.kv_indptr[0] == 0
    assert np.diff(pages.qo_indptr).tolist() == [span.length for span in spans]
    assert np.diff(pages.kv_indptr).tolist() == [-(-span.context // BLOCK) for span in spans]
    assert pages.contexts.tolist() == [span.context for span in spans]
    assert pages.starts.tolist() == [span.start for span in spans]
    assert pages.last_page_len.min() >= 1
    assert pages.last_page_len.max() <= BLOCK


@settings(deadline=None)
@given(steps())
def test_no_row_is_written_twice_where_tables_are_disjoint(spans: list[AttentionSpan]) -> None:
    pages = step_pages(spans, BLOCK, NUM_BLOCKS)
    written = rows_written(pages)
    assert len(set(written)) == len(written)
    owners: dict[int, int] = {}
    for owner, (page, _) in zip(pages.batch_indices.tolist(), written, strict=True):
        assert owners.setdefault(page, owner) == owner


def test_all_arrays_are_contiguous_int32_whatever_the_tables_are() -> None:
    tables: tuple[Any, ...] = (
        [0, 1],
        array("i", [2, 3]),
        array("q", [4, 5]),
        np.array([6, 7, 8, 9])[::2],
        np.array([1, 2], dtype=np.int32),
    )
    for table in tables:
        pages = step_pages([AttentionSpan(3, 4, table)], BLOCK, 10)
        assert pages.kv_indices.tolist() == list(table)
        for field in fields(pages):
            value = getattr(pages, field.name)
            if field.name != "block_size":
                assert value.dtype == np.int32
                assert value.flags.c_contiguous


@pytest.mark.parametrize(
    "wrong", [np.arange(3, dtype=np.int64), np.arange(6, dtype=np.int32)[::2], np.zeros((1, 3))]
)
def test_arrays_that_would_be_misread_are_refused(wrong: Any) -> None:
    pages = step_pages([decode(1, [0]), decode(1, [1])], BLOCK, 10)
    with pytest.raises(ValueError, match="qo_indptr must be a contiguous row of int32"):
        replace(pages, qo_indptr=wrong)


def test_a_planned_table_can_grow() -> None:
    table = array("i", [3, 5])
    pages = step_pages([AttentionSpan(0, 8, table)], BLOCK, 10)
    table.extend([7] * 1000)
    table[0] = 9
    assert pages.kv_indices.tolist() == [3, 5]


def test_a_table_that_is_too_short_is_refused() -> None:
    spans = [decode(4, [0]), AttentionSpan(4, 5, [1, 2])]
    with pytest.raises(
        ValueError,
        match="a context of 9 tokens needs 3 blocks of 4, but the block table names 2",
    ):
        step_pages(spans, BLOCK, 10)


@pytest.mark.parametrize("block", [-1, 10])
def test_a_block_that_does_not_exist_is_refused(block: int) -> None:
    with pytest.raises(ValueError, match="a block table names blocks outside 0 to 9"):
        step_pages([decode(4, [0]), decode(8, [3, block])], BLOCK, 10)


def test_a_block_that_is_not_needed_may_be_anything() -> None:
    assert step_pages([decode(4, [0, -1])], BLOCK, 10).kv_indices.tolist() == [0]


@pytest.mark.parametrize(("start", "length"), [(0, 0), (3, -1), (-1, 3)])
def test_a_span_without_a_token_or_a_place_is_refused(start: int, length: int) -> None:
    with pytest.raises(ValueError, match="a span needs a token and a start of 0 or more"):
        step_pages([decode(1, [0]), AttentionSpan(start, length, [1])], BLOCK, 10)


def test_a_step_needs_a_span() -> None:
    with pytest.raises(ValueError, match="at least one span"):
        step_pages([], BLOCK, 10)


def shared(spans: list[AttentionSpan], at_least: int = 1) -> int:
    return shared_pages(step_pages(spans, BLOCK, NUM_BLOCKS), at_least)


def test_shared_pages_by_hand() -> None:
    first, second = decode(14, [1, 2, 3, 4]), decode(13, [1, 2, 8, 9])
    assert shared([first, second]) == 2
    assert shared([first, second], at_least=8) == 2
    assert shared([first, second], at_least=9) == 0
    assert shared([first, first]) == 3
    assert shared([first, second, decode(14, [1, 7, 3, 5])]) == 1
    assert shared([first, second, decode(14, [6, 2, 3, 5])]) == 0
    assert shared([first]) == 0


def test_shared_pages_lie_before_every_first_query() -> None:
    table = list(range(10))
    assert shared([decode(13, table), decode(40, table)]) == 3
    assert shared([decode(12, table), decode(40, table)]) == 2
    assert shared([AttentionSpan(7, 20, table), decode(40, table)]) == 1
    assert shared([AttentionSpan(0, 20, table), decode(40, table)]) == 0


def test_sharing_pays_from_256_tokens_on() -> None:
    table = list(range(300))
    long = step_pages([decode(257, table), decode(900, table)], BLOCK, NUM_BLOCKS)
    short = step_pages([decode(256, table), decode(900, table)], BLOCK, NUM_BLOCKS)
    assert shared_pages(long) == 64
    assert shared_pages(short) == 0


@pytest.mark.parametrize("common", [0, 1, 15, 16, 17, 47, 48, 49, 90])
def test_a_shared_run_of_any_length_is_found(common: int) -> None:
    head = list(range(common))
    spans = [decode(400, head + list(range(100 * i, 100 * i + 100 - common))) for i in (1, 2, 3)]
    assert shared(spans) == common


def test_two_levels_by_hand() -> None:
    spans = [decode(14, [1, 2, 3, 4]), AttentionSpan(9, 3, [1, 2, 8])]
    pages = step_pages(spans, BLOCK, 10)
    common, own = split_levels(pages, 2)
    assert common.qo_indptr.tolist() == [0, 4]
    assert common.kv_indptr.tolist() == [0, 2]
    assert common.kv_indices.tolist() == [1, 2]
    assert common.last_page_len.tolist() == [4]
    assert own.qo_indptr.tolist() == [0, 1, 4]
    assert own.kv_indptr.tolist() == [0, 2, 3]
    assert own.kv_indices.tolist() == [3, 4, 8]
    assert own.last_page_len.tolist() == [2, 4]


@settings(deadline=None)
@given(steps(), st.integers(1, 6))
def test_the_levels_together_read_what_the_step_reads(
    spans: list[AttentionSpan], common: int
) -> None:
    head = list(range(200, 200 + common))
    moved = [
        AttentionSpan(span.start + common * BLOCK, span.length, [*head, *span.block_table])
        for span in spans
    ]
    pages = step_pages(moved, BLOCK, NUM_BLOCKS)
    levels = split_levels(pages, common)
    (together,), each = (positions_read(level, BLOCK) for level in levels)
    assert [together + own for own in each] == positions_read(pages, BLOCK)
    assert levels[0].qo_indptr.tolist() == [0, pages.num_tokens]
    assert levels[1].qo_indptr.tolist() == pages.qo_indptr.tolist()


@pytest.mark.parametrize("common", [-1, 0, 3])
def test_levels_that_would_cut_into_queries_are_refused(common: int) -> None:
    pages = step_pages([decode(14, [1, 2, 3, 4]), AttentionSpan(9, 3, [1, 2, 8])], BLOCK, 10)
    with pytest.raises(ValueError, match=f"from 1 to 2 pages lie before every query, not {common}"):
        split_levels(pages, common)
