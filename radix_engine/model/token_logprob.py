"""What is told of a token's log-probability. Needs no torch."""

from __future__ import annotations

from typing import NamedTuple

MAX_TOP = 20


class TokenLogprob(NamedTuple):
    """A token's log-probability, and the likeliest tokens in its place with theirs, likeliest
    first; of equals the lower id."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
