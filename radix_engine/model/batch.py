"""What a forward pass is asked to compute: one span of tokens per request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """One request's part in a step.

    ``tokens`` are the ids to run through the model in this step (at least one); ``start`` is the
    position of ``tokens[0]`` in its sequence, so everything before it is cached already.
    ``block_table`` holds the block ids of positions 0 up to ``start + len(tokens) - 1``, in order
    (more may follow and are not looked at). ``wants_logits`` asks for the logits after the last
    token.
    """

    tokens: Sequence[int]
    start: int
    block_table: Sequence[int]
    wants_logits: bool
