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


def test_the_last_call_of_a_period_alone_says_that_the_factor_has_changed() -> None:
    past = Past()

    def said(tokens: int, calls: int) -> list[bool]:
        answers = []
        for _ in range(calls):
            past.lru += 100
            answers.append(past.guard.served(tokens))
        return answers

    assert said(80, 3) == [False] * 3, "nothing was evicted"
    past.guard.evicted(50)
    assert said(80, 10) == [False] * 9 + [True]
    past.guard.evicted(50)
    assert said(70, 10) == [False] * 9 + [True]
    past.guard.evicted(50)
    assert said(95, 10) == [False] * 10, "20 a call lost on average, 30 with the other"


def test_factors_are_compared_by_the_call_however_long_their_periods_were() -> None:
    past = Past()
    assert [past.period(tokens=99, lru=100, evicted=10) for _ in range(3)] == [0.1] * 3
    assert past.period(tokens=99, lru=100, evicted=20) == 1.0  # 1 a call lost, in 31 calls
    assert past.period(tokens=98, lru=100) == 0.1  # 2 a call, in 10


def test_what_a_factor_gained_before_counts_for_seven_tenths() -> None:
    past = Past()
    assert past.period(tokens=110, lru=100) == 0.1
    assert past.period(tokens=80, lru=100) == 0.1  # 7 - 6 gained
    past = Past()
    assert past.period(tokens=110, lru=100) == 0.1
    assert past.period(tokens=70, lru=100) == 1.0  # 7 - 9


def test_without_a_difference_nothing_changes() -> None:
    past = Past()
    assert past.period(tokens=100, lru=100) == 0.1, "as much as LRU"
    past = Past()
    past.guard.evicted(50)
    for tokens in [100, 101] * 5:
        past.lru += 100
        past.guard.served(tokens)
    assert past.guard.factor == 0.1, "half a token a call more"
    past = Past()
    assert past.period(tokens=90, lru=100) == 1.0
    assert past.period(tokens=90, lru=100) == 1.0, "as much as with the first"
    assert past.period(tokens=0, lru=100) == 0.1  # -7 - 30, and the first has -10
    assert past.period(tokens=0, lru=100) == 0.1  # -7 - 30: as much as the other
