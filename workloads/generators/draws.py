"""Random draws that are the same in every version of Python.

Of the module `random` only the numbers from 0 to 1 are promised to stay as they are, so all else is
made of these.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Draws that follow from a seed and what they are for."""

    def __init__(self, seed: int, what: str) -> None:
        self._random = Random(f"{what} {seed}").random

    def below(self, count: int) -> int:
        """A whole number from 0 to ``count`` - 1."""
        return int(self._random() * count)

    def between(self, least: int, most: int) -> int:
        """A whole number from ``least`` to ``most``."""
        return least + self.below(most - least + 1)

    def seconds(self, mean: float) -> float:
        """An exponentially distributed time, in whole milliseconds."""
        return round(-math.log(1.0 - self._random()) * mean, 3)

    def shuffled(self, things: Sequence[T]) -> list[T]:
        """The things in another order."""
        keys = [self._random() for _ in things]
        return [things[at] for at in sorted(range(len(things)), key=keys.__getitem__)]

    def zipf(self, count: int, exponent: float) -> Iterator[int]:
        """Numbers from 0 to ``count`` - 1 without end; number k has a weight of
        1 / (k + 1) ** ``exponent``."""
        sums = list(accumulate(1 / rank**exponent for rank in range(1, count + 1)))
        while True:
            yield min(bisect(sums, self._random() * sums[-1]), count - 1)
