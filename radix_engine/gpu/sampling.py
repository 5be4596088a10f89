"""Random tokens by FlashInfer's kernels: its softmax, its top_k and its top_p, our random numbers.

FlashInfer's own samplers take a seed per row, but their kernels read the first one only and add the
row's place in the batch, so that a token would depend on who shares the batch. So they filter, and
the token is found by the request's own number, as in torch's `draw_later`, which is the reference:

1. logits, less the row's largest, so that no temperature overflows
2. min_p over temperature                        (torch)
3. top_k                                         top_k_mask_logits
4. temperature, probabilities                    softmax
5. top_p of what top_k left                      top_p_renorm_probs
6. the token at the row's share of what is left  top_p_renorm_probs again, or a cumulative sum

What is likeliest up to a share is what top_p leaves of that share. So its least likely token is the
one that a sort and a cumulative sum would find there, and nothing is sorted.

FlashInfer keeps all equals of the last token that top_k or top_p leaves, and torch as many as are
wanted, those with the lowest ids: steps 5 and 6 count them. Probabilities are float32 here and
float64 in torch. So a token may differ where a share or a cut lies within `DRAW_TOLERANCE` of where
another token begins; and tokens whose float32 probabilities are equal count as equally likely, in
the order of their ids, even where their logits differ in the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from radix_engine.model.sampling_draw import Draw, draw_in_order, invert, least_score, on_device

DRAW_TOLERANCE = 1e-5
"""By how much a row's share of its probabilities, its top_p or its min_p may be off."""

# For more rows FlashInfer's softmax adds up in another order, which would change last bits.
_ROWS_AT_A_TIME = 128
# The kernels divide by it in float32. Beyond these all tokens count alike, or only the likeliest.
_LOWEST_TEMPERATURE, _HIGHEST_TEMPERATURE = 1e-20, 1e30
_LEAST_SHARE = 1e-30  # the kernels want one above 0


class _Table(NamedTuple):
    """The rows' parameters on the device: of [rows] where a kernel reads them, else [rows, 1]."""

    temperatures: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    numbers: torch.Tensor
    least_scores: torch.Tensor


class _Cut(NamedTuple):
    """Where the likeliest tokens reach a share: the probability of the last of them, float32, and
    the sum of all that are likelier, float64; both [rows, 1]."""

    last: torch.Tensor
    likelier: torch.Tensor


@dataclass(frozen=True, slots=True)
class FlashInferDrawer:
    """A `Drawer` over ``flashinfer``, the module. Nothing in it waits for the device.

    A row's token does not depend on the rows beside it, but for what torch's float64 sums round off
    (1e-16). Rows that are no numbers yield some token.
    """

    flashinfer: Any

    def __call__(self, logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
        """See `Drawer`. Cost: some thirty passes over the logits of rows with top_k and top_p, ten
        over those with neither; no sort. Memory: 32 bytes a logit, of 128 rows at most."""
        parts = [
            draw_in_order(
                logits[first : first + _ROWS_AT_A_TIME],
                draws[first : first + _ROWS_AT_A_TIME],
                self._by_id,
                self._likeliest_first,
            )
            for first in range(0, len(draws), _ROWS_AT_A_TIME)
        ]
        if not parts:
            return torch.empty(0, dtype=torch.int64, device=logits.device)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _by_id(self, logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
        table = _table(draws, logits)
        scores = _scores(logits, draws, table)
        probabilities = self.flashinfer.softmax(scores, table.temperatures)
        return invert(probabilities.cumsum(dim=-1, dtype=torch.float64), table.numbers)

    def _likeliest_first(self, logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
        table = _table(draws, logits)
        scores = _scores(logits, draws, table)
        limited = any(0 < each.params.top_k < logits.shape[1] for each in draws)
        if limited:
            scores = self.flashinfer.top_k_mask_logits(scores, table.top_k)
        probabilities = self.flashinfer.softmax(scores, table.temperatures)
        total = _sum(probabilities)
        mass = total - _surplus(scores, probabilities, table.top_k) if limited else total
        if any(each.params.top_p < 1 for each in draws):
            wanted = table.top_p * mass
            cut = self._cut(probabilities, wanted / total)
            equals = (probabilities == cut.last).sum(dim=-1, keepdim=True)
            needed = ((wanted - cut.likelier) / cut.last).ceil().clamp(min=1)
            nucleus = cut.likelier + torch.minimum(needed, equals) * cut.last
            mass = torch.where(table.top_p < 1, nucleus, mass)
        return self._at(probabilities, table.numbers * mass, total)

    def _at(
        self, probabilities: torch.Tensor, target: torch.Tensor, total: torch.Tensor
    ) -> torch.Tensor:
        """The token with which the likeliest exceed ``target``; of equals, those with the lowest
        ids come first."""
        width = probabilities.shape[1]
        cut = self._cut(probabilities, target / total)
        place = ((target - cut.likelier) / cut.last).floor().clamp(0, width)
        places = (probabilities == cut.last).cumsum(dim=-1, dtype=torch.int32)
        place = torch.minimum(place.to(torch.int32) + 1, places[:, -1:])
        return torch.searchsorted(places, place).squeeze(1).clamp_(max=width - 1)

    def _cut(self, probabilities: torch.Tensor, shares: torch.Tensor) -> _Cut:
        """Where the likeliest tokens reach these shares, float64 [rows, 1], of the whole."""
        shares = shares.squeeze(1).clamp(min=_LEAST_SHARE).to(torch.float32)
        # Otherwise its sums, and so its cuts, change from run to run.
        left = self.flashinfer.top_p_renorm_probs(probabilities, shares, is_deterministic=True)
        last = _least(probabilities, left > 0)
        return _Cut(last, _sum(torch.where(probabilities > last, probabilities, 0.0)))


def _table(draws: Sequence[Draw], logits: torch.Tensor) -> _Table:
    """In one copy to the device."""
    width = logits.shape[1]
    numbers = np.array(
        [
            (
                min(max(each.params.temperature, _LOWEST_TEMPERATURE), _HIGHEST_TEMPERATURE),
                min(each.params.top_k, width) if each.params.top_k > 0 else width,
                each.params.top_p,
                each.number,
                each.params.temperature * least_score(each.params),
            )
            for each in draws
        ],
        np.float64,
    )
    temperatures, top_k, *columns = on_device(numbers.T.copy(), logits.device).unbind(0)
    top_p, shares, least = (column.unsqueeze(1) for column in columns)
    return _Table(
        temperatures.to(torch.float32),
        top_k.to(torch.int32),
        top_p,
        shares,
        least.to(torch.float32),
    )


def _scores(logits: torch.Tensor, draws: Sequence[Draw], table: _Table) -> torch.Tensor:
    """Logits less the row's largest, float32; what min_p leaves out has minus infinity. The kernels
    get no NaN, on which they may end the process's use of the device."""
    scores = logits.to(torch.float32)
    scores = scores - scores.amax(dim=-1, keepdim=True)
    scores.nan_to_num_(nan=0.0, neginf=-math.inf)
    if any(each.params.min_p for each in draws):
        scores.masked_fill_(scores < table.least_scores, -math.inf)
    return scores


def _surplus(
    scores: torch.Tensor, probabilities: torch.Tensor, top_k: torch.Tensor
) -> torch.Tensor:
    """The probability of equals of the last token that are left beyond ``top_k``."""
    left = scores > -math.inf
    beyond = left.sum(dim=-1, keepdim=True) - top_k.unsqueeze(1)
    return beyond.clamp(min=0) * _least(probabilities, left).to(torch.float64)


def _least(probabilities: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    return torch.where(among, probabilities, math.inf).amin(dim=-1, keepdim=True)


def _sum(probabilities: torch.Tensor) -> torch.Tensor:
    return probabilities.sum(dim=-1, keepdim=True, dtype=torch.float64)
