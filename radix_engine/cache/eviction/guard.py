"""Whether a rule's guess pays, measured against LRU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """``factors``: what the worth of a branch that another call has continued is multiplied by,
    the first one unless it costs. The leaf of such a branch is what its reply, or the end of its
    prompt, left beside the way that the conversation took: agents never ask for it again, retries
    and parallel samples do. A period lasts ``calls`` calls, and until ``turnover`` of the memory
    has been evicted, since what a choice does shows only in what comes back later. ``weight`` of
    the last period in the mean of those with its factor.
    """

    factors: tuple[float, float] = (0.1, 1.0)
    calls: int = 300
    turnover: float = 0.5
    weight: float = 0.3


class Guard:
    """Chooses the factor by what the rule served more than LRU would have, in periods.

    What LRU would have served from the same memory is known exactly (see `reuse_curve`), so this
    needs no shadow. It never falls back on LRU itself: that would give up all that the rule holds,
    which cost more on every trace than it saved.
    """

    def __init__(self, config: GuardConfig) -> None:
        self._config = config
        self._lru_hit_tokens: Callable[[], int] | None = None
        self._enough = 0.0  # evicted blocks of a period
        self._lru_before = 0
        self._choice = 0
        self._gains: list[float | None] = [None, None]  # tokens a call, by factor
        self._gain = self._calls = self._evicted = 0

    @property
    def factor(self) -> float:
        """What the worth of a continued branch is multiplied by."""
        return self._config.factors[self._choice]

    def attach(self, lru_hit_tokens: Callable[[], int], num_blocks: int) -> None:
        """``lru_hit_tokens``: what LRU has served so far from a memory of so many blocks."""
        self._lru_hit_tokens = lru_hit_tokens
        self._lru_before = lru_hit_tokens()
        self._enough = num_blocks * self._config.turnover

    def evicted(self, blocks: int) -> None:
        """The rule's choice took so many blocks."""
        self._evicted += blocks

    def served(self, tokens: int) -> bool:
        """A call found so many tokens; whether the factor is another one from now on."""
        if self._lru_hit_tokens is None:
            return False
        lru = self._lru_hit_tokens()
        gain = tokens - (lru - self._lru_before)
        self._lru_before = lru
        if not self._evicted:
            return False  # nothing was chosen yet, in this period
        self._gain += gain
        self._calls += 1
        if self._calls < self._config.calls or self._evicted < self._enough:
            return False
        return self._end_period()

    def _end_period(self) -> bool:
        mean = self._gain / self._calls
        self._gain = self._calls = self._evicted = 0
        before = self._gains[self._choice]
        weight = self._config.weight
        now = mean if before is None else (1 - weight) * before + weight * mean
        self._gains[self._choice] = now
        other = self._gains[1 - self._choice]
        if self._choice == 0:
            change = now < 0 and (other is None or other > now)
        else:
            change = other is not None and now < other
        if change:
            self._choice = 1 - self._choice
        return change
