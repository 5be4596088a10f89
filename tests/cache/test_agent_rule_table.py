"""The table of worths beside one that is made observation by observation, with plain loops."""

from __future__ import annotations

import random

import numpy as np
import pytest

from radix_engine.cache.eviction.returns import Returns, ReturnsConfig

Table = list[list[float]]


class Plain:
    """Counts who came back, and who was still waiting at the end of each span of ages."""

    def __init__(self, returns: Returns) -> None:
        self.config = returns.config
        self.edges = returns.edges
        self.by_reply = returns.running(0)  # the classes before it are of replies that ended
        self.came = [[0.0] * returns.bins for _ in range(returns.classes)]
        self.reached = [[0.0] * returns.bins for _ in range(returns.classes)]

    def span(self, age: float) -> int:
        """The span of ages that an age is in."""
        later = [at for at, edge in enumerate(self.edges[:-1]) if age >= edge]
        return max(later, default=0)

    def came_back(self, number: int, age: float) -> None:
        at = self.span(age)
        self.came[number][at] += 1
        self.waited(self.reached, number, at + 1)

    def waited(self, table: Table, number: int, spans: int) -> None:
        for at in range(spans):
            table[number][at] += 1

    def decay(self) -> None:
        for table in (self.came, self.reached):
            for row in table:
                row[:] = [count * self.config.decay for count in row]

    def worth(self, waiting: list[tuple[int, float]]) -> Table:
        reached = [row[:] for row in self.reached]
        for number, age in waiting:
            self.waited(reached, number, self.span(age))
        overall = self.overall(reached)
        return [
            self.of_class([self.chance(self.came[n], reached[n], overall, at) for at in self.spans])
            for n in range(len(self.came))
        ]

    @property
    def spans(self) -> range:
        return range(len(self.came[0]))

    def overall(self, reached: Table) -> list[float]:
        """The chances of all replies together."""
        config = self.config
        prior = config.prior_chance / config.bins_per_octave
        found = []
        for at in self.spans:
            came = sum(row[at] for row in self.came[: self.by_reply])
            of = sum(row[at] for row in reached[: self.by_reply])
            found.append((came + config.prior_count * prior) / (of + config.prior_count))
        return [*found[:-1], 0.0]

    def chance(
        self, came: list[float], reached: list[float], overall: list[float], at: int
    ) -> float:
        flat, returns = self.config.shrink
        more = flat + returns / max(overall[at], 1e-5)
        return min(0.999, (came[at] + more * overall[at]) / (reached[at] + more))

    def of_class(self, chances: list[float]) -> list[float]:
        """For a leaf at the start of each span: the best of returns over seconds, by how long it
        would be held."""
        found = []
        for start in self.spans:
            waits, came, held, best = 1.0, 0.0, 0.0, 0.0
            for at in range(start, len(chances)):
                length = self.edges[at + 1] - self.edges[at]
                held += waits * (1 - chances[at] / 2) * length
                came += waits * chances[at]
                waits *= 1 - chances[at]
                best = max(best, came / held)
            found.append(best)
        return found


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_same(seed: int) -> None:
    draw = random.Random(seed)
    returns = Returns(ReturnsConfig(prior_count=3.0, decay=0.8))
    plain = Plain(returns)
    plain.decay()

    def age() -> float:
        return draw.choice([0.1, 0.49, 0.5, 3.0, 40.0, 899.0, 5000.0]) * draw.uniform(0.9, 1.1)

    for _ in range(4):
        for _ in range(60):
            number, at = draw.randrange(returns.classes), age()
            kind = draw.random()
            if kind < 0.6:
                returns.came_back(number, at)
                plain.came_back(number, at)
            elif kind < 0.9:
                returns.lost(number, at)
                plain.waited(plain.reached, number, plain.span(at))
            else:
                returns.add_gone(np.array([number]))
                plain.waited(plain.reached, number, returns.bins)
        waiting = [(draw.randrange(returns.classes), age()) for _ in range(40)]
        classes = np.array([number for number, _ in waiting])
        returns.rebuild(classes, np.array([at for _, at in waiting]))
        plain.decay()
        for found, expected in zip(returns.rows, plain.worth(waiting), strict=True):
            assert found == pytest.approx(expected, rel=1e-9)


def test_a_chance_is_never_taken_for_certain() -> None:
    returns = Returns(ReturnsConfig(decay=1.0, shrink=(1e-9, 0.0), prior_count=1e-9))
    for _ in range(50):
        returns.came_back(0, 3.0)
    returns.rebuild(np.zeros(0, np.int64), np.zeros(0))
    at = returns.bin(3.0)
    low, high = returns.edges[at : at + 2]
    assert returns.rows[0][at] == pytest.approx(0.999 / ((high - low) * (1 - 0.999 / 2)), rel=1e-3)


def test_the_table_is_due_every_so_many_calls_and_once_half_way_to_the_first() -> None:
    returns = Returns(ReturnsConfig(every=8))
    assert [call for call in range(1, 33) if returns.due()] == [4, 8, 16, 24, 32]
