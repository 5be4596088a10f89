"""What a forward pass is asked to compute: one span of tokens per request."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch


class Span(NamedTuple):
    """One request's part in a step.

    ``tokens`` are the ids to run through the model in this step (at least one); ``start`` is the
    position of ``tokens[0]`` in its sequence, so everything before it is cached already.
    ``block_table`` holds the block ids of positions 0 up to ``start + len(tokens) - 1``, in order
    (more may follow and are not looked at). ``num_logits``: after how many tokens of the span's end
    logits are wanted: 0, 1, or up to all of them.
    """

    tokens: Sequence[int]
    start: int
    block_table: Sequence[int]
    num_logits: int


class Follow(NamedTuple):
    """Tokens that another step samples, and that are on the device only: ``tokens`` int64 [n].

    Of all spans' tokens, one after the other, those at ``places`` are the ones in ``rows`` of
    these, whatever stands there.
    """

    tokens: torch.Tensor
    places: Sequence[int]
    rows: Sequence[int]


class FlatBatch(NamedTuple):
    """All spans' tokens one after the other: ids and positions, int64 [tokens], and which of these
    rows want logits, int64, in order."""

    tokens: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    wanted: npt.NDArray[np.int64]


def flatten(spans: Sequence[Span]) -> FlatBatch:
    """The spans as flat arrays. Cost: O(spans + tokens), half a microsecond a span."""
    tokens, positions, wanted = array("i"), array("q"), array("q")
    for ids, start, _, num_logits in spans:
        count = len(ids)
        if count == 1:
            tokens.append(ids[0])
            positions.append(start)
        else:
            tokens.extend(ids)
            positions.extend(range(start, start + count))
        if num_logits == 1:
            wanted.append(len(tokens) - 1)
        elif num_logits:
            wanted.extend(range(len(tokens) - num_logits, len(tokens)))
    return FlatBatch(*(np.array(part, np.int64) for part in (tokens, positions, wanted)))
