"""How a request wants its tokens chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

_SEED_LIMIT = 2**63
_TOP_K_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens.

    ``temperature`` (0 or more): 0 always takes the likeliest token. ``top_k``: only the k likeliest
    tokens (0 or -1: all). ``top_p`` (0 to 1): of those, the smallest set of likeliest tokens whose
    renormalised probabilities reach this sum; never fewer than one token. ``seed``: makes the
    answer repeatable; None leaves the choice of a seed to the engine. Raises ValueError naming
    the field and its range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature must be a finite number of at least 0, not {self.temperature!r}"
            )
        if not _is_number(self.top_p) or not 0 <= self.top_p <= 1:
            raise ValueError(f"top_p must be a number from 0 to 1, not {self.top_p!r}")
        if not _is_integer(self.top_k) or not -1 <= self.top_k <= _TOP_K_LIMIT:
            raise ValueError(
                f"top_k must be a whole number from -1 to {_TOP_K_LIMIT} "
                f"(0 and -1: no limit), not {self.top_k!r}"
            )
        if self.seed is not None and (
            not _is_integer(self.seed) or not -_SEED_LIMIT <= self.seed < _SEED_LIMIT
        ):
            raise ValueError(
                f"seed must be a whole number from -2**63 to 2**63 - 1, not {self.seed!r}"
            )

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken, whatever the seed."""
        return self.temperature == 0 or self.top_k == 1 or self.top_p == 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
