"""The one interface of attention over KV blocks, for models that run layer by layer.

A step is planned once, from what is the same for all layers (which rows to write and to read,
masks, groups), and then run layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class AttentionSpan:
    """Positions ``start`` up to ``start + length - 1`` of one sequence, computed in this step.

    ``block_table`` holds the block ids of all positions from 0 on; it may be longer than needed.
    """

    start: int
    length: int
    block_table: Sequence[int]

    @property
    def context(self) -> int:
        """Tokens that the last query of the span sees, itself included."""
        return self.start + self.length


class AttentionPlan(Protocol):
    """The attention of one step; good for that step only."""

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Write this step's K and V into their blocks, then attend.

        ``queries`` [tokens, heads, head_dim], ``keys`` and ``values`` [tokens, kv_heads, head_dim]:
        all spans one after another, rotated already. Returns [tokens, heads, head_dim]. A query
        sees its own position and all before it. All K and V of the step are written before any is
        read, so a span may read a block that another span of the same step fills.

        Scores are queries times keys times ``scale`` (None: head_dim ** -0.5). With a ``window`` a
        query at position p sees the keys at p - window + 1 to p only, and nothing before the window
        of a span's first query is read. With a ``softcap`` c a score s becomes c * tanh(s / c).
        Raises ValueError for a window below 1 or a cap that is not above 0.
        """
        ...

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Only write this step's K and V, for a layer whose attention nobody needs."""
        ...


class Attention(Protocol):
    """A way to compute attention over one KV memory."""

    def plan(self, spans: Sequence[AttentionSpan]) -> AttentionPlan:
        """Prepare a step of at least one span.

        Raises ValueError for a block table that is too short or names blocks that do not exist.
        """
        ...
