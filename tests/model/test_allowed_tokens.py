"""Rows that allow only some tokens, and what that leaves of sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from radix_engine.model import sampling_draw
from radix_engine.model.allowed_tokens import (
    AllowedTokens,
    _forbid_on_device,
    all_but,
    forbid_others,
)
from radix_engine.model.penalties import TokenCounts
from radix_engine.model.sampling import SampleRow, sample, sample_later
from radix_engine.model.sampling_draw import draw_later
from radix_engine.model.sampling_params import SamplingParams
from tests.model.naive_sampling import naive_token

GREEDY = SamplingParams(temperature=0.0)
VOCABULARY = 1000


def only(tokens: Sequence[int], vocabulary: int = VOCABULARY) -> AllowedTokens:
    """As the bits of a mask are defined: token i is bit i % 8 of byte i // 8."""
    mask = bytearray(-(-vocabulary // 8))
    for token in tokens:
        mask[token // 8] |= 1 << token % 8
    return np.frombuffer(bytes(mask), np.uint8)


def some_logits(rows: int, vocabulary: int = VOCABULARY) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn((rows, vocabulary), generator=generator) * 3


def allowed_row(params: SamplingParams, tokens: Sequence[int], count: int = 0) -> SampleRow:
    """The row after an answer of the first ``count`` tokens of the vocabulary."""
    counts = TokenCounts()
    for token in range(count):
        counts.add(token)
    return SampleRow(params, 11, count, counts, only(tokens))


def test_all_but_some_is_everything_else() -> None:
    assert all_but([], 11).tolist() == [0xFF, 0b111]
    assert all_but([0, 9], 11).tolist() == [0xFE, 0b101]


@pytest.mark.parametrize("apply", ["host", "device"])
def test_what_is_not_allowed_becomes_minus_infinity_and_no_other_bit_changes(apply: str) -> None:
    logits = some_logits(4, 21)
    masks = [only([0, 7, 8, 20], 21), None, only([3], 21), only([1, 2], 16)[:1]]
    changed = logits.clone()
    if apply == "host":
        forbid_others(changed, masks)
    else:
        rows = [row for row, mask in enumerate(masks) if mask is not None]
        _forbid_on_device(changed, rows, [mask for mask in masks if mask is not None])
    expected = torch.full_like(logits, -math.inf)
    for row, tokens in enumerate(([0, 7, 8, 20], range(21), [3], [1, 2])):
        expected[row, list(tokens)] = logits[row, list(tokens)]
    assert torch.equal(changed, expected)


def test_on_a_device_rows_that_are_all_masked_are_changed_in_place() -> None:
    logits = some_logits(2, 21)
    kept = logits[:, 5].clone()
    _forbid_on_device(logits, [0, 1], [only([5], 21)] * 2)
    assert torch.equal(logits[:, 5], kept)
    assert int(torch.isfinite(logits).sum()) == 2


def test_a_greedy_row_takes_the_likeliest_of_what_is_allowed() -> None:
    logits = some_logits(1)
    order = logits[0].argsort(descending=True).tolist()
    tokens = [order[500], order[30], order[999]]
    assert sample(logits, [allowed_row(GREEDY, tokens)]) == [order[30]]
    assert torch.equal(logits, some_logits(1)), "the logits themselves are as they were"


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(top_k=5),
        SamplingParams(top_k=300),
        SamplingParams(top_p=0.9),
        SamplingParams(top_k=20, top_p=0.5, min_p=0.01),
        SamplingParams(temperature=5.0, top_p=0.99),
        SamplingParams(presence_penalty=1.0, repetition_penalty=1.2),
    ],
)
@pytest.mark.parametrize("count", [1, 2, 40, 400])
def test_a_random_row_draws_as_if_all_others_were_impossible(
    params: SamplingParams, count: int
) -> None:
    logits = some_logits(1)
    generator = np.random.default_rng(count)
    tokens = np.sort(generator.choice(VOCABULARY, count, replace=False)).tolist()
    for index in range(20):
        masked = [-math.inf] * VOCABULARY
        for token in tokens:
            masked[token] = float(logits[0, token])
        drawn = sample(logits, [allowed_row(params, tokens, index)])
        assert drawn == [naive_token(masked, params, 11, [], range(index))]


def test_few_allowed_tokens_cost_no_sort_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_draw, "_sorted", None)
    for params in (SamplingParams(top_k=40), SamplingParams(top_p=0.9)):
        assert sample(some_logits(1), [allowed_row(params, [3, 500, 999])])[0] in (3, 500, 999)


def test_a_bias_brings_back_no_token_that_is_not_allowed() -> None:
    params = SamplingParams(temperature=0.0, logit_bias={3: 100.0})
    assert sample(some_logits(1), [allowed_row(params, [1, 2])])[0] in (1, 2)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(), SamplingParams(top_k=9, top_p=0.8)])
def test_rows_beside_one_with_a_mask_have_the_tokens_that_they_have_alone(
    params: SamplingParams,
) -> None:
    logits = some_logits(3)
    rows = [SampleRow(params, row, row) for row in range(3)]
    rows[1] = allowed_row(params, [4, 5])
    alone = [sample(logits[row : row + 1], [rows[row]])[0] for row in range(3)]
    assert sample(logits, rows) == alone
    assert sample(logits, rows, draw_later) == alone
    assert alone[1] in (4, 5)


def test_a_token_that_nobody_waits_for_cannot_have_a_mask() -> None:
    with pytest.raises(ValueError, match="allowed"):
        sample_later(some_logits(1), [allowed_row(GREEDY, [1])])
