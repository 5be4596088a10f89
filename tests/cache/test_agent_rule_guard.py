"""The guard: tries the other factor when LRU would have served more, and keeps the better."""

from __future__ import annotations

from radix_engine.cache.eviction.guard import Guard, GuardConfig

CONFIG = GuardConfig(factors=(0.1, 1.0), calls=10, turnover=0.5)


class Past:
    """What LRU would have served so far."""

    def __init__(self) -> None:
        self.lru = 0
        self.guard = Guard(CONFIG)
        self.guard.attach(lambda: self.lru, 100)

    def period(self, tokens: int, lru: int, evicted: int = 50) -> float:
        """Ten calls, of which each found so many tokens; the factor afterwards."""
        self.guard.evicted(evicted)
        for _ in range(10):
            self.lru += lru
            self.guard.served(tokens)
        return self.guard.factor


def test_the_first_factor_stays_while_it_gains() -> None:
    past = Past()
    assert [past.period(tokens=100, lru=90) for _ in range(5)] == [0.1] * 5


def test_where_lru_serves_more_the_other_factor_is_tried_and_kept_if_it_is_better() -> None:
    past = Past()
    assert past.period(tokens=80, lru=100) == 1.0
    assert [past.period(tokens=95, lru=100) for _ in range(5)] == [1.0] * 5


def test_a_factor_that_is_worse_still_is_given_up_again() -> None:
    past = Past()
    assert past.period(tokens=90, lru=100) == 1.0
    assert past.period(tokens=50, lru=100) == 0.1
    assert [past.period(tokens=90, lru=100) for _ in range(5)] == [0.1] * 5


def test_a_period_lasts_until_enough_was_evicted_to_tell() -> None:
    past = Past()
    assert past.period(tokens=80, lru=100, evicted=30) == 0.1
    assert past.period(tokens=80, lru=100, evicted=19) == 0.1
    assert past.period(tokens=80, lru=100, evicted=1) == 1.0


def test_calls_before_anything_was_evicted_say_nothing() -> None:
    past = Past()
    assert [past.period(tokens=0, lru=100, evicted=0) for _ in range(5)] == [0.1] * 5


def test_a_guard_that_is_told_of_no_lru_changes_nothing() -> None:
    guard = Guard(CONFIG)
    guard.evicted(1000)
    assert not any(guard.served(0) for _ in range(100))
    assert guard.factor == 0.1
