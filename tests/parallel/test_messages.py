"""What rank 0 says arrives as it was said, and what cannot be is not said."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import pytest

from radix_engine.model.batch import Span
from radix_engine.parallel.messages import (
    Kind,
    decode_copies,
    decode_start,
    decode_step,
    encode_copies,
    encode_end,
    encode_start,
    encode_step,
    kind_of,
)
from radix_engine.parallel.reports import Outcome, decode_report, encode_report


def sent(spans: Sequence[Span]) -> list[tuple[list[int], int, list[int], int]]:
    message = encode_step(spans, 4, 10, 100)
    assert kind_of(message) == Kind.STEP
    return [
        (list(tokens), start, list(table), num_logits)
        for tokens, start, table, num_logits in decode_step(message)
    ]


def test_a_step_arrives_with_the_blocks_that_it_needs() -> None:
    spans = [
        Span([5, 6, 7], 2, [9, 0, 3, 4], 1),  # five tokens in all: two blocks of four
        Span([99], 8, [1, 2, 5], 0),
        Span([1, 2, 3, 4], 0, [8], 4),
    ]
    assert sent(spans) == [
        ([5, 6, 7], 2, [9, 0], 1),
        ([99], 8, [1, 2, 5], 0),
        ([1, 2, 3, 4], 0, [8], 4),
    ]


def test_a_step_is_an_int32_for_each_token_and_block_and_four_for_each_span() -> None:
    spans = [Span([5, 6, 7], 2, [9, 0, 3, 4], 1), Span([99], 8, [1, 2, 5], 0)]
    assert len(encode_step(spans, 4, 10, 100)) == 4 * (2 + 2 * 4 + 4 + 5)


@pytest.mark.parametrize("as_given", [list, tuple, lambda v: array("i", v), np.array])
def test_tokens_and_blocks_may_be_any_sequence(as_given: type[list[int]]) -> None:
    span = Span(as_given([5, 6]), 3, as_given([9, 0]), 1)
    assert sent([span]) == [([5, 6], 3, [9, 0], 1)]


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Span([100], 0, [0], 1), "a token id lies outside 0 to 99"),
        (Span([-1], 0, [0], 1), "a token id lies outside 0 to 99"),
        (Span([2**31], 0, [0], 1), "out of range"),
        (Span([1], 0, [10], 1), "a block table names blocks outside 0 to 9"),
        (Span([1], 0, [-1], 1), "a block table names blocks outside 0 to 9"),
        (Span([1, 2], 3, [0], 1), "needs 2 blocks of 4, but the block table names 1"),
    ],
)
def test_a_step_that_cannot_be_run_is_refused(span: Span, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_step([Span([1], 0, [0], 1), span], 4, 10, 100)


def test_copies_arrive_in_order() -> None:
    message = encode_copies([(1, 2, 3), (2, 4, 16)])
    assert kind_of(message) == Kind.COPY
    assert decode_copies(message) == [(1, 2, 3), (2, 4, 16)]


def test_the_size_of_the_memory_arrives() -> None:
    message = encode_start(70_000, 16)
    assert kind_of(message) == Kind.START
    assert decode_start(message) == (70_000, 16)


def test_the_end_is_told() -> None:
    assert kind_of(encode_end()) == Kind.END


def test_a_report_arrives_with_its_text_and_later_ones_are_later() -> None:
    first = decode_report(encode_report(Outcome.FAILED, "no € memory\n"))
    second = decode_report(encode_report(Outcome.DONE))
    assert (first.outcome, first.text) == (Outcome.FAILED, "no € memory\n")
    assert (second.outcome, second.text) == (Outcome.DONE, "")
    assert first.at_ns < second.at_ns
