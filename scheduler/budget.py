"""What fits: pure arithmetic over tokens and blocks. Nothing here changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class QueueFull(RuntimeError):
    """As many requests wait as may. Nothing was queued."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a step, and of the queue.

    ``max_step_tokens``: tokens computed in one step, prefill chunks and decodes together; None: as
    many as suit the model's kernels, where these are known, else 256.
    ``max_running``: requests that hold blocks at a time. ``max_passed_by``: later arrivals that
    may be admitted before a waiting request; after that many it is the next one. ``max_waiting``:
    requests in the queue, preempted ones not counted; None: any number. ``max_sessions``:
    conversations under way, by the contexts that fit the memory (``auto``) or by number; those that
    begin meanwhile are held back; None: any number.
    """

    max_step_tokens: int | None = None
    max_running: int = 64
    max_passed_by: int = 256
    max_waiting: int | None = None
    max_sessions: int | Literal["auto"] | None = None

    def __post_init__(self) -> None:
        for name in ("max_step_tokens", "max_running"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_running > self.step_tokens:
            raise ValueError(
                f"max_running ({self.max_running}) must not exceed max_step_tokens "
                f"({self.step_tokens}): every running request gets a token in each step"
            )
        if self.max_passed_by < 0:
            raise ValueError(f"max_passed_by must be at least 0, not {self.max_passed_by}")
        if self.max_waiting is not None and self.max_waiting < 1:
            raise ValueError(f"max_waiting must be at least 1, not {self.max_waiting}")
        most = self.max_sessions
        if most is not None and most != "auto" and (type(most) is not int or most < 1):
            raise ValueError(f"max_sessions must be at least 1, auto or None, not {most!r}")

    @property
    def step_tokens(self) -> int:
        """``max_step_tokens``, or how many that is where nothing else is known."""
        if self.max_step_tokens is not None:
            return self.max_step_tokens
        return max(256, self.max_running)


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that hold ``num_tokens`` tokens."""
    return -(-num_tokens // block_size)


def blocks_missing(num_tokens: int, blocks_held: int, block_size: int) -> int:
    """Blocks to allocate so that the first ``num_tokens`` tokens have a place."""
    return max(0, blocks_for(num_tokens, block_size) - blocks_held)


def admission_cost(needed: int, matched: int, newly_pinned: int) -> int:
    """What admitting a request takes from the available blocks (free ones and evictable ones).

    A hit saves ``matched`` blocks of ``needed``, but those of them that nobody pins yet
    (``newly_pinned``) stop being evictable.
    """
    return max(0, needed - matched) + newly_pinned


def prefill_share(budget: int, *, others_wait: bool) -> int:
    """How much of the tokens left in a step one long prompt may take.

    A quarter is kept for the waiting requests: one that is short, or has most of its prompt cached,
    then gets its first token next to a long prompt and not after it.
    """
    return budget - budget // 4 if others_wait else budget
