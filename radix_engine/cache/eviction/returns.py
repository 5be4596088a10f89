"""How often and how soon branches come back, and what a second of holding one is worth.

The next call of a branch comes after a gap, or never. Of each class of branches the chance to come
back at a given age is estimated from those seen before. Most of them are still waiting, so counting
only those that came back would make all of them look quick; the product-limit estimate (Kaplan and
Meier, Nonparametric Estimation from Incomplete Observations, JASA 53, 1958) counts each for as long
as it has been watched. Ages are divided into bins, so it is one number a class and bin::

    chance to come back in a bin = those that came back in it / those that reached it waiting

To hold a leaf costs its room for as long as it is held, and pays once, when it is asked for again.
What is worth most is then the one with the greatest index of Gittins (Bandit Processes and Dynamic
Allocation Indices, JRSS B 41, 1979): of a leaf of age a, over all times T up to which it could be
held, the best of ::

    chance that it is asked for in (a, T]  /  seconds it would be held in (a, T], expected

A branch that comes back every minute is worth more and more as its minute draws near, and little
once it has passed; one whose chances only fall with its age makes this order that of LRU.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReturnsConfig:
    """Found on traces of agents and of chats; none of these matters by more than 3 points of the
    gap between LRU and the optimum, but for the two that say otherwise.

    ``least_s``, ``most_s``, ``bins_per_octave``: ages below the first are one bin (no tool answers
    sooner), and who is away for longer than the second counts as gone. ``gap_octaves``: the classes
    of a branch's usual gap between two calls, by its log2 in seconds, are cut at even steps from 4
    s to 512 s; learnt cuts were far worse. ``gap_classes``: so many, and one for no gap yet.
    ``decay`` of all counts at a rebuild, every ``every`` calls: an hour of a busy server is
    remembered, a change of its use soon seen. ``shrink``: a class with few observations is drawn
    towards all classes together, as if it had seen so many as would hold about 0.3 returns besides
    2 (chats suffer without). ``prior_count``, ``prior_chance``: before anything is seen, that many
    observations of this chance an octave.
    """

    least_s: float = 0.5
    most_s: float = 900.0
    bins_per_octave: int = 3
    gap_octaves: tuple[float, float] = (2.0, 9.0)
    gap_classes: int = 12
    decay: float = 0.99
    every: int = 32
    shrink: tuple[float, float] = (2.0, 0.3)
    prior_count: float = 20.0
    prior_chance: float = 0.03


STOPS = 2  # why a reply ended: none known, or with a call of a tool


class Returns:
    """Counts by class and age, and the table made of them: ``rows[class][bin]``, returns a second.

    A class is a usual gap and, once the reply has ended, why; ages count from its end then, and
    from the call's arrival before. ``version`` grows with each table.
    """

    def __init__(self, config: ReturnsConfig) -> None:
        self.config = config
        octaves = math.log2(config.most_s / config.least_s)
        self.bins = int(config.bins_per_octave * octaves) + 2
        per = config.bins_per_octave
        self.edges = [0.0, *(config.least_s * 2 ** (b / per) for b in range(self.bins))]
        low, high = config.gap_octaves
        steps = config.gap_classes - 1
        self._cuts = [low + (high - low) * k / steps for k in range(steps)]
        self._arrived = (1 + config.gap_classes) * STOPS  # the first class of ages since arrival
        self.classes = self._arrived + 1 + config.gap_classes
        # New since the last table, as places in it: bins in which some came back; and the last bin
        # that each was waiting in, which says all that it reached.
        self._new_came: list[int] = []
        self._new_last: list[int] = []
        self._came = np.zeros((self.classes, self.bins))
        self._reached = np.zeros((self.classes, self.bins))
        self._calls = 0
        self.version = 0
        self.rows: list[list[float]] = []
        self.rebuild(np.zeros(0, np.int64), np.zeros(0))

    def bin(self, age: float) -> int:
        """The bin of an age in seconds; ages below 0 are in the first one."""
        config = self.config
        if age < config.least_s:
            return 0
        octaves = math.log2(age / config.least_s)
        return min(self.bins - 1, 1 + int(config.bins_per_octave * octaves))

    def gap_class(self, log_gap: float | None) -> int:
        """The class of a usual gap, log2 of seconds; 0 for none."""
        return 0 if log_gap is None else 1 + bisect_right(self._cuts, log_gap)

    def replied(self, gap_class: int, stop: int) -> int:
        """The class of a branch whose reply has ended."""
        return gap_class * STOPS + stop

    def running(self, gap_class: int) -> int:
        """The class of a branch whose reply is being made, or of what many branches share."""
        return self._arrived + gap_class

    def came_back(self, number: int, age: float) -> None:
        """One of a class came back at this age."""
        place = number * self.bins + self.bin(age)
        self._new_came.append(place)
        self._new_last.append(place)

    def lost(self, number: int, age: float) -> None:
        """One of a class is not watched any more; it had not come back at this age."""
        before = self.bin(age) - 1
        if before >= 0:
            self._new_last.append(number * self.bins + before)

    def due(self) -> bool:
        """Count a call; whether the table should be made anew: also early in the first ones."""
        self._calls += 1
        return self._calls % self.config.every == 0 or self._calls == self.config.every // 2

    def add_gone(self, numbers: Numbers) -> None:
        """One more of each of these classes has not come back at all."""
        self._new_last.extend((numbers * self.bins + self.bins - 1).tolist())

    def rebuild(self, waiting: Numbers, ages: Counts) -> None:
        """Make the table anew. ``waiting``: the class of each that has not come back yet, with its
        age. Cost: O(waiting) in numpy, and a fraction of a millisecond."""
        self._came += self._table(np.array(self._new_came, np.int64))
        self._reached += _from_the_right(self._table(np.array(self._new_last, np.int64)))
        self._new_came.clear()
        self._new_last.clear()
        self._came *= self.config.decay
        self._reached *= self.config.decay
        self.rows = _worth(
            *self._chances(self._reached + self._reached_by(waiting, ages)), self.edges
        ).tolist()
        self.version += 1

    def _table(self, places: Numbers) -> Counts:
        """How often each place of the table occurs."""
        counts = np.bincount(places, minlength=self.classes * self.bins)
        return counts.reshape(self.classes, self.bins).astype(np.float64)

    def _reached_by(self, waiting: Numbers, ages: Counts) -> Counts:
        """By class and bin, how many of those that wait have lived through it."""
        config = self.config
        octaves = np.log2(np.maximum(ages, config.least_s) / config.least_s)
        bins = np.minimum(self.bins - 1, 1 + (config.bins_per_octave * octaves).astype(np.int64))
        bins[ages < config.least_s] = 0
        present = self._table(waiting * self.bins + bins)
        return _from_the_right(present) - present

    def _chances(self, reached: Counts) -> tuple[Counts, Counts]:
        """Per class, the chance to come back in each bin, and not to have come back before it (one
        column more: nor in the last)."""
        config = self.config
        by_reply = slice(0, self._arrived)  # each branch once
        came = self._came[by_reply].sum(0)
        prior = config.prior_chance / config.bins_per_octave
        overall = (came + config.prior_count * prior) / (
            reached[by_reply].sum(0) + config.prior_count
        )
        overall[-1] = 0.0  # past the last bin nobody is waited for
        flat, returns = config.shrink
        weight = flat + returns / np.maximum(overall, 1e-5)
        chance = np.minimum((self._came + weight * overall) / (reached + weight), 0.999)
        waits = np.ones((self.classes, self.bins + 1))
        np.cumprod(1 - chance, axis=1, out=waits[:, 1:])
        return chance, waits


def _from_the_right(counts: Counts) -> Counts:
    """Per class, the sum of each bin and all later ones."""
    return counts[:, ::-1].cumsum(1)[:, ::-1]


def _worth(chance: Counts, waits: Counts, edges: list[float]) -> Counts:
    """Per class and bin, the index of a leaf at the start of the bin."""
    classes, bins = chance.shape
    held = np.zeros((classes, bins + 1))  # seconds held up to each edge, expected
    # One that comes back in a bin does so, on average, in the middle of it.
    np.cumsum(waits[:, :-1] * (1 - chance / 2) * np.diff(edges), axis=1, out=held[:, 1:])
    worth = np.empty((bins, classes))
    waits, held = np.ascontiguousarray(waits.T), np.ascontiguousarray(held.T)
    for at in range(bins):
        seconds = np.maximum(held[at + 1 :] - held[at], 1e-12)
        worth[at] = ((waits[at] - waits[at + 1 :]) / seconds).max(0)
    return worth.T
