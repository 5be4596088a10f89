"""Whether what conversations leave behind counts as used."""

from __future__ import annotations

import pytest

from radix_engine.cache.eviction.left_behind import LeftBehind, LeftBehindConfig

EVERY = LeftBehindConfig().every


def judged(calls: int, went_on: int, left: int, used: int) -> LeftBehind:
    """After so many calls, the counts told evenly before them."""
    counts = LeftBehind(LeftBehindConfig(decay=1.0))
    for number in range(calls):
        for _ in range((number + 1) * left // calls - number * left // calls):
            counts.left()
        for _ in range((number + 1) * used // calls - number * used // calls):
            counts.used()
        counts.called(went_on=number < went_on)
    return counts


def test_before_anything_is_seen_it_does_not() -> None:
    assert not LeftBehind(LeftBehindConfig()).is_used
    assert not judged(10 * EVERY, 0, 0, 0).is_used


@pytest.mark.parametrize(
    ("left", "used", "is_used"),
    [
        # usual = 161 / 322 = 0.5; the prior is 30 observations, 1.5 of them used.
        (100, 30, False),  # 31.5 / 130 = 0.242
        (100, 31, True),  # 32.5 / 130 = 0.25, half of the usual
        (0, 0, False),  # 1.5 / 30
        (4, 4, False),  # 5.5 / 34 = 0.16: few observations decide nothing
        (10, 9, True),  # 10.5 / 40 = 0.26
    ],
)
def test_it_does_from_half_the_usual_chance_on(left: int, used: int, is_used: bool) -> None:
    assert judged(10 * EVERY, 5 * EVERY, left, used).is_used == is_used


def test_it_is_told_once_when_it_changes_and_changes_back() -> None:
    counts = LeftBehind(LeftBehindConfig())
    told = []
    for number in range(60 * EVERY):
        counts.left()
        if number < 20 * EVERY:
            counts.used()
        if counts.called(went_on=True):
            told.append((number, counts.is_used))
    (first, second) = told
    # After 32: (15.84 * 2 + 30 * 0.1 * usual) / (31.68 + 30) = 0.56 of 0.97.
    assert first == (EVERY - 1, True)
    assert second[1] is False
    assert 20 * EVERY < second[0] < 60 * EVERY


def test_judging_waits_for_as_many_calls_as_said() -> None:
    counts = LeftBehind(LeftBehindConfig())
    for _ in range(EVERY - 1):
        counts.left()
        counts.used()
        assert not counts.called(went_on=True)
    assert not counts.is_used
    assert counts.called(went_on=True)
