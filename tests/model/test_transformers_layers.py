"""Sliding windows are read from transformers' own masks, at any distance."""

from __future__ import annotations

import pytest
import torch
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    chunked_causal_mask_function,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from radix_engine.model.errors import ModelError
from radix_engine.model.transformers_layers import Mask, read_window


def causal_but_at_one_query(
    batch: torch.Tensor, head: torch.Tensor, q: torch.Tensor, k: torch.Tensor
) -> object:
    return (k <= q) & (q != 0)


def window_of_8_that_starts_a_query_late(
    batch: torch.Tensor, head: torch.Tensor, q: torch.Tensor, k: torch.Tensor
) -> object:
    return (k <= q) & ((k > q - 8) | (q == 8))


def test_a_causal_mask_has_no_window() -> None:
    assert read_window(causal_mask_function, 1000) is None
    assert read_window(causal_mask_function, 1) is None


@pytest.mark.parametrize("window", [1, 2, 3, 511, 512, 999])
def test_a_sliding_window_is_read_in_full(window: int) -> None:
    assert read_window(sliding_window_causal_mask_function(window), 1000) == window


@pytest.mark.parametrize("window", [1000, 1001, 4096])
def test_a_window_that_covers_the_context_is_none(window: int) -> None:
    assert read_window(sliding_window_causal_mask_function(window), 1000) is None


@pytest.mark.parametrize(
    "mask",
    [
        bidirectional_mask_function,
        sliding_window_bidirectional_mask_function(8),
        chunked_causal_mask_function(8, torch.zeros(1, dtype=torch.int64)),
        chunked_causal_mask_function(500, torch.zeros(1, dtype=torch.int64)),
        causal_but_at_one_query,
        window_of_8_that_starts_a_query_late,
    ],
)
def test_any_other_mask_is_refused(mask: Mask) -> None:
    with pytest.raises(ModelError, match="neither causal nor a sliding window"):
        read_window(mask, 1000)
