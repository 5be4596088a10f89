"""How a request wants its tokens chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

_SEED_LIMIT = 2**63
_TOP_K_LIMIT = 2**31 - 1

MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0
MAX_PENALTY = 2.0  # of presence and frequency, and no less than its negative
MAX_LOGIT_BIAS = 100.0  # and no less than its negative


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens. The fields take effect in this order; logits l, probabilities p.

    ``logit_bias`` (token id -> -100 to 100) is added to l. ``repetition_penalty`` r (0.01 to 100; 1
    is off): for tokens of the prompt and of the answer so far l is divided by r where above 0, else
    multiplied by r. ``frequency_penalty`` (-2 to 2) times how often the answer has the token, and
    ``presence_penalty`` (-2 to 2) once if it has it, are subtracted from l.

    ``temperature`` (0 or more): 0 always takes the likeliest token, else l is divided by it.
    ``min_p`` (0 to 1): only tokens with at least this share of the likeliest one's p. ``top_k``:
    of those, only the k likeliest (0 or -1: all). ``top_p`` (0 to 1): of those, the smallest set of
    likeliest tokens whose renormalised p reach this sum; never fewer than one token. ``seed``:
    makes the answer repeatable; None leaves the choice of a seed to the engine.

    Raises ValueError naming the field, its range and the value.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature must be a finite number of at least 0, not {self.temperature!r}"
            )
        for name in ("top_p", "min_p"):
            _check_range(name, getattr(self, name), 0, 1)
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
        _check_range(
            "repetition_penalty",
            self.repetition_penalty,
            MIN_REPETITION_PENALTY,
            MAX_REPETITION_PENALTY,
        )
        for name in ("presence_penalty", "frequency_penalty"):
            _check_range(name, getattr(self, name), -MAX_PENALTY, MAX_PENALTY)
        self._check_bias()

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken, whatever the seed."""
        return self.temperature == 0 or self.top_k == 1 or self.top_p == 0

    @property
    def changes_logits(self) -> bool:
        """Whether the model's own order of tokens may change: by penalties, or a bias."""
        return self.penalizes or bool(self.logit_bias)

    @property
    def penalizes(self) -> bool:
        """Whether it matters which tokens the prompt and the answer have."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    def _check_bias(self) -> None:
        if not isinstance(self.logit_bias, Mapping):
            raise ValueError(
                f"logit_bias must be a mapping of token ids to numbers, not {self.logit_bias!r}"
            )
        for token, bias in self.logit_bias.items():
            if not _is_integer(token) or token < 0:
                raise ValueError(f"logit_bias must have token ids for keys, not {token!r}")
            _check_range(f"logit_bias[{token}]", bias, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS)
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))


def _check_range(name: str, value: object, low: float, high: float) -> None:
    if not _is_number(value) or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
