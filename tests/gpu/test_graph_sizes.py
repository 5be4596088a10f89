"""Which steps are recorded, and which of them a batch takes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.gpu.graphs import (
    capture_limit,
    capture_sizes,
    fitting_size,
    is_decode,
    padded,
)
from radix_engine.model.batch import Span


def test_one_two_four_and_every_eight_are_recorded_largest_first() -> None:
    assert capture_sizes(40) == (40, 32, 24, 16, 8, 4, 2, 1)
    assert capture_sizes(20) == (16, 8, 4, 2, 1)
    assert capture_sizes(7) == (4, 2, 1)
    assert capture_sizes(3) == (2, 1)
    assert capture_sizes(0) == ()


def test_all_that_may_run_find_a_graph_up_to_256() -> None:
    assert [capture_limit(running) for running in (1, 8, 9, 64, 250, 256, 257, 1000)] == [
        8,
        8,
        16,
        64,
        256,
        256,
        256,
        256,
    ]


def test_a_batch_takes_the_smallest_size_with_room() -> None:
    recorded = (1, 2, 4, 8, 16)
    chosen = [fitting_size(recorded, batch) for batch in (1, 2, 3, 4, 5, 8, 9, 16, 17)]
    assert chosen == [1, 2, 4, 4, 8, 8, 16, 16, None]
    assert fitting_size((), 1) is None


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 300))
def test_no_recorded_size_with_room_is_smaller_than_the_chosen_one(limit: int, batch: int) -> None:
    recorded = sorted(capture_sizes(limit))
    with_room = [size for size in recorded if size >= batch]
    assert fitting_size(recorded, batch) == min(with_room, default=None)


def test_only_single_tokens_that_all_want_logits_are_a_decode() -> None:
    decode = Span([1], 5, [0], 1)
    assert is_decode([decode, decode])
    assert not is_decode([decode, Span([1, 2], 5, [0], 1)])
    assert not is_decode([decode, Span([1], 5, [0], 0)])


def test_padding_is_one_token_in_the_dummy_block() -> None:
    spans = [Span([4], 20, [7, 2], 1), Span([9], 0, [3], 1)]
    whole = padded(spans, 4, 11)
    assert whole[:2] == spans
    assert [(list(s.tokens), s.start, list(s.block_table)) for s in whole[2:]] == [
        ([0], 0, [11]),
        ([0], 0, [11]),
    ]
    assert is_decode(whole)
    assert padded(spans, 2, 11) == spans
