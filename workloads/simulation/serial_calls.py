"""Calls as the cache alone sees them: a path of blocks each, one after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workloads.traces.block_trace import BlockTrace


@dataclass(frozen=True, slots=True)
class SerialCall:
    """``path``: numbers of the blocks of its prompt and, where it is stored, its reply; equal
    numbers are equal prefixes. The first ``prompt_blocks`` of them can be hit. It runs from
    ``start_s`` to ``end_s``; equal: for no time at all. Its reply took ``reply_s``, and ended by
    ``stop``."""

    path: npt.NDArray[np.int64]
    prompt_blocks: int
    prompt_tokens: int
    start_s: float
    end_s: float
    stop: str | None = None
    reply_s: float = 0.0

    def hit_tokens(self, blocks: int, block_tokens: int) -> int:
        """What so many hit blocks save: never the prompt's last token."""
        return max(0, min(blocks * block_tokens, self.prompt_tokens - 1))


def calls_of(trace: BlockTrace, *, pinned: bool) -> list[SerialCall]:
    """A trace of blocks as calls; ``pinned``: they run for as long as their replies took."""
    return [
        SerialCall(
            path=call.ids.astype(np.int64),
            prompt_blocks=len(call.ids),
            prompt_tokens=call.prompt_tokens,
            start_s=call.arrival_s,
            end_s=call.arrival_s + ((call.reply_s or 0.0) if pinned else 0.0),
            stop=call.stop,
            reply_s=call.reply_s or 0.0,
        )
        for call in trace.calls
    ]


def in_random_order(calls: Sequence[SerialCall], seed: int) -> list[SerialCall]:
    """The same calls in an order by seed, at the same times; each runs for as long as before."""
    drawn = list(calls)
    random.Random(f"calls {seed}").shuffle(drawn)
    return [
        replace(call, start_s=at.start_s, end_s=at.start_s + call.end_s - call.start_s)
        for call, at in zip(drawn, calls, strict=True)
    ]


def hit_rate(calls: Sequence[SerialCall], hits: Sequence[int], block_tokens: int) -> float:
    """Tokens served over tokens asked for; ``hits``: each call's blocks."""
    asked = sum(call.prompt_tokens for call in calls)
    served = sum(
        call.hit_tokens(blocks, block_tokens) for call, blocks in zip(calls, hits, strict=True)
    )
    return served / asked if asked else 0.0
