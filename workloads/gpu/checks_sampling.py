"""FlashInfer's sampling against torch in float64 on the CPU: its operations, and the tokens drawn.

Both get the same logits, rounded to the model's dtype, so that equals are common. What is not
initialised is NaN. A token is right where its row's number lies among the token's share of the
probability, or so little outside as the rounding of float32 allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from radix_engine.gpu.sampling import DRAW_TOLERANCE, FlashInferDrawer
from radix_engine.model.sampling_draw import Draw
from radix_engine.model.sampling_params import SamplingParams
from workloads.gpu.checks_ops import PART, uninitialised_is_nan
from workloads.gpu.outcomes import EXACT, Check, Tolerance, compare

WIDTHS = (1000, 49152, 128256)
"""Numbers of logits for which FlashInfer has different kernels; two are those of vocabularies."""

ROWS = 136  # more than are drawn at once
WAYS = (
    SamplingParams(),
    SamplingParams(temperature=0.3),
    SamplingParams(temperature=2.0, min_p=0.02),
    SamplingParams(top_k=2),
    SamplingParams(top_k=50),
    SamplingParams(temperature=0.7, top_k=700),
    SamplingParams(top_p=0.1),
    SamplingParams(top_p=0.95),
    SamplingParams(temperature=1.5, top_p=0.6),
    SamplingParams(top_k=40, top_p=0.9),
    SamplingParams(temperature=0.8, top_k=100, top_p=0.8, min_p=0.01),
)

_SPREAD = 2.5  # of the logits: some tokens are likely, and most of them together
_SUM_TOLERANCE = Tolerance(DRAW_TOLERANCE)
# Exponentials of float32 numbers down to about -30, whose last bits count.
_PROBABILITY_TOLERANCE = Tolerance(1e-9, 1e-4)
_NEVER = -1e6  # in place of minus infinity, which no comparison takes


def check_sampling(
    flashinfer: Any, device: torch.device, dtype: torch.dtype, width: int, seed: int
) -> list[Check]:
    """Check the operations and the tokens over rows of ``width`` logits, with other inputs for each
    ``seed``."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(ROWS, width, generator=generator) * _SPREAD).to(dtype).to(torch.float32)
    numbers = torch.rand(ROWS, generator=generator, dtype=torch.float64).tolist()
    draws = [Draw(WAYS[row % len(WAYS)], number) for row, number in enumerate(numbers)]
    bench = _Bench(flashinfer, device, logits)
    with uninitialised_is_nan():
        return [bench.softmax(), bench.top_k(), *bench.top_p(), *bench.tokens(draws)]


@dataclass(frozen=True, slots=True)
class _Bench:
    flashinfer: Any
    device: torch.device
    logits: torch.Tensor

    def compare(
        self, name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance
    ) -> Check:
        rows, width = self.logits.shape
        return compare(PART, f"{name}, {rows} rows of {width:,}", found, expected, tolerance)

    def by_row(self, *values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """These in turn, one a row, on the CPU."""
        rows = len(self.logits)
        return torch.tensor(values).repeat(-(-rows // len(values)))[:rows].to(dtype)

    @torch.inference_mode()
    def softmax(self) -> Check:
        temperatures = self.by_row(1.0, 0.5, 2.0)
        found = self.flashinfer.softmax(self.logits.to(self.device), temperatures.to(self.device))
        expected = (self.logits.double() / temperatures.double()[:, None]).softmax(dim=-1)
        return self.compare("softmax", found, expected, _PROBABILITY_TOLERANCE)

    @torch.inference_mode()
    def top_k(self) -> Check:
        """All that are at least as large as the last of them, and all of their bits."""
        counts = self.by_row(1, 5, 64, 700, self.logits.shape[1], dtype=torch.int32)
        found = self.flashinfer.top_k_mask_logits(
            self.logits.to(self.device), counts.to(self.device)
        )
        values = self.logits.sort(dim=-1, descending=True).values
        last = values.gather(1, counts.long()[:, None] - 1)
        expected = self.logits.masked_fill(self.logits < last, _NEVER)
        return self.compare("top k", _without_infinity(found), expected, EXACT)

    @torch.inference_mode()
    def top_p(self) -> list[Check]:
        """The likeliest that reach the share, no more of them than that takes, adding up to 1."""
        shares = self.by_row(0.05, 0.5, 0.9, 0.99)
        probabilities = self.logits.softmax(dim=-1)
        left = self.flashinfer.top_p_renorm_probs(
            probabilities.to(self.device), shares.to(self.device), is_deterministic=True
        ).cpu()
        exact, wanted = probabilities.double(), shares.double()
        last = exact.masked_fill(left == 0, math.inf).amin(dim=-1, keepdim=True)
        likelier = exact.masked_fill(exact <= last, 0.0).sum(dim=-1)
        among = exact.masked_fill(exact < last, 0.0)
        sums = among.sum(dim=-1)
        nothing = torch.zeros_like(sums)
        return [
            self.compare("top p", left, among / sums[:, None], _PROBABILITY_TOLERANCE),
            self.compare("what top p lacks", (wanted - sums).clamp(min=0), nothing, _SUM_TOLERANCE),
            self.compare(
                "what top p has too much", (likelier - wanted).clamp(min=0), nothing, _SUM_TOLERANCE
            ),
        ]

    @torch.inference_mode()
    def tokens(self, draws: Sequence[Draw]) -> list[Check]:
        """Each is the right one, whoever shares the batch."""
        drawer, logits = FlashInferDrawer(self.flashinfer), self.logits.to(self.device)
        found = drawer(logits, draws)
        off = misses(self.logits, draws, found.tolist(), DRAW_TOLERANCE)
        some = range(0, len(draws), 7)
        alone = torch.cat([drawer(logits[row : row + 1], [draws[row]]) for row in some])
        return [
            self.compare("tokens", off, torch.zeros_like(off), _SUM_TOLERANCE),
            self.compare("tokens alone", alone, found[list(some)], EXACT),
        ]


def misses(
    logits: torch.Tensor, draws: Sequence[Draw], tokens: Sequence[int], slack: float
) -> torch.Tensor:
    """How far each row's number lies outside its token's share of the probability: 0 for a right
    token, infinity for one that is left out. float64 [rows].

    Where min_p or top_p cut within ``slack`` of a token, it may be in or out. Cost: a sort a row.
    """
    rows = zip(logits.to(torch.float64), draws, tokens, strict=True)
    return torch.tensor([_miss(*row, slack) for row in rows], dtype=torch.float64)


def _miss(logits: torch.Tensor, draw: Draw, token: int, slack: float) -> float:
    if not 0 <= token < len(logits):
        return math.inf
    params, width = draw.params, len(logits)
    places = torch.arange(width)
    ids = places
    if 0 < params.top_k < width or params.top_p < 1:
        ids = logits.argsort(descending=True, stable=True)
    place = int((ids == token).nonzero())
    weights = ((logits - logits.max()) / params.temperature).exp()[ids]
    if 0 < params.top_k < width:
        weights[(weights >= params.min_p).cumsum(0) > params.top_k] = 0
    found = math.inf
    for off in (-slack, 0.0, slack):
        shares = weights.masked_fill(weights < params.min_p * (1 + off), 0.0)
        shares /= shares.sum()
        if params.top_p < 1:
            before = shares.cumsum(0) - shares
            shares[(before >= params.top_p + off) & (places > 0)] = 0
            shares /= shares.sum()
        end = float(shares[: place + 1].sum())
        begin = end - float(shares[place])
        if begin < end:
            found = min(found, max(0.0, begin - draw.number, draw.number - end))
    return found


def _without_infinity(scores: torch.Tensor) -> torch.Tensor:
    return torch.where(scores == -math.inf, _NEVER, scores)
