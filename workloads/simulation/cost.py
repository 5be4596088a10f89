"""How long a simulated step takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from scheduler import ScheduledSpan
from workloads.simulation.step_file import MeasuredStep


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a step: ``fixed``, and so many for each token that it computes (``per_token``),
    for each pair of such a token and a token that it attends to, itself included (``per_pair``),
    and for each request that takes part (``per_sequence``).
    """

    fixed: float
    per_token: float
    per_pair: float
    per_sequence: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value >= 0 for value in astuple(self)):
            raise ValueError(f"a cost must be a finite number of at least 0 seconds: {self}")
        if not any(astuple(self)):
            raise ValueError("a step must take some time: all four costs are 0")

    def seconds(self, computed: int, pairs: int, sequences: int) -> float:
        """What a step takes."""
        return (
            self.fixed
            + self.per_token * computed
            + self.per_pair * pairs
            + self.per_sequence * sequences
        )

    def of_spans(self, spans: Sequence[ScheduledSpan]) -> float:
        """What a step takes that computes these spans. Cost: O(spans)."""
        computed, pairs = 0, 0
        for span in spans:
            count = span.count
            computed += count
            pairs += attended_pairs(span.start, count)
        return self.seconds(computed, pairs, len(spans))


MEASURED = CostModel(fixed=2.62e-2, per_token=2.52e-4, per_pair=3.22e-7, per_sequence=1.14e-3)
"""The default model on a CPU: fitted to 120 steps that measure-steps timed (seeds 1 and 2) on
2026-11-30, on 2 cores of an Intel Xeon that other programs used too, torch 2.13.0 in bf16. Half of
those steps lie within 16% of it; replies behind contexts of 1,000 tokens and more take up to 2.6
times as long, since their attention reads memory and does not compute."""


def attended_pairs(start: int, count: int) -> int:
    """Pairs of a computed token and one that it attends to, for ``count`` tokens from position
    ``start`` on: each attends to itself and to all before it."""
    return count * start + count * (count + 1) // 2


def fit(steps: Iterable[MeasuredStep]) -> tuple[CostModel, float]:
    """The costs that explain measured steps best, none of them negative; and the median of the
    relative errors that they leave.

    Least squares of the relative errors, so that a short step counts as much as a long one. Raises
    ValueError where fewer than four steps were measured, or they are too much alike to tell the
    costs apart.
    """
    rows = list(steps)
    wanted = np.array([step.seconds for step in rows])
    features = np.array([[1.0, s.computed, s.pairs, s.sequences] for s in rows]).reshape(-1, 4)
    scale = features.max(axis=0, initial=1.0)
    # The columns are brought to a like size first; pairs are millions of times the constant.
    relative = features / scale / wanted[:, None]
    if len(rows) < 4 or np.linalg.matrix_rank(relative) < 4:
        raise ValueError(
            f"{len(rows)} measured steps that are too few or too much alike for four costs: "
            "measure steps of different sizes, contexts and numbers of sequences"
        )
    found = _least_squares_from_zero(relative, np.ones(len(rows))) / scale
    errors = np.abs(features @ found / wanted - 1)
    return CostModel(*(float(value) for value in found)), float(np.median(errors))


def _least_squares_from_zero(
    matrix: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    target: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The x without negative entries that brings ``matrix @ x`` nearest to ``target``.

    Where some entries are held at 0, the others are those of an ordinary fit; with a few columns
    every choice of them can be tried.
    """
    best = np.zeros(matrix.shape[1])
    least = float(target @ target)
    columns = range(matrix.shape[1])
    for count in columns:
        for chosen in itertools.combinations(columns, count + 1):
            part, *_ = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)
            if (part < 0).any():
                continue
            rest = matrix[:, chosen] @ part - target
            if float(rest @ rest) < least:
                least = float(rest @ rest)
                best = np.zeros(matrix.shape[1])
                best[list(chosen)] = part
    return best
