"""The model of returns: what it makes of observations whose answer can be told by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from radix_engine.cache.eviction.calls import Call, Calls
from radix_engine.cache.eviction.returns import Returns, ReturnsConfig

# Little is assumed beforehand, and nothing forgotten, so that counts show as they are.
PLAIN = ReturnsConfig(decay=1.0, shrink=(1e-6, 0.0), prior_count=1e-6)
NOBODY = np.zeros(0, np.int64), np.zeros(0)


def returns_after(ages: list[float], gone: int = 0) -> Returns:
    """A model whose first class came back at these ages, but for some that never did."""
    returns = Returns(PLAIN)
    for age in ages:
        returns.came_back(0, age)
    returns.add_gone(np.zeros(gone, np.int64))
    returns.rebuild(*NOBODY)
    return returns


def worth(returns: Returns, age: float) -> float:
    return returns.rows[0][returns.bin(age)]


def test_bins_are_a_third_of_an_octave_and_hold_all_ages() -> None:
    returns = Returns(ReturnsConfig())
    edges = returns.edges
    assert edges[:2] == [0.0, 0.5]
    assert edges[4] == pytest.approx(1.0)
    assert edges[-1] > 900
    for number in range(returns.bins - 1):
        assert returns.bin(edges[number] + 1e-9) == number
    assert [returns.bin(age) for age in (-3.0, 0.0, 0.499)] == [0, 0, 0]
    assert returns.bin(1e9) == returns.bins - 1


def test_gaps_fall_into_classes_from_4_to_512_seconds() -> None:
    returns = Returns(ReturnsConfig())
    gaps = [None, -2.0, 1.99, 2.0, 4.0, 8.0, 8.9, 40.0]
    classes = [returns.gap_class(gap) for gap in gaps]
    assert classes[0] == 0
    assert classes[1] == classes[2] == 1
    assert classes[3] == 2
    assert sorted(classes) == classes
    assert classes[-1] == 12
    assert returns.classes == 39


def test_the_second_that_is_worth_most_is_the_one_right_before_a_regular_return() -> None:
    returns = returns_after([30.0] * 100)
    rising = [worth(returns, age) for age in (0.1, 2.0, 10.0, 20.0, 26.0)]
    assert sorted(rising) == rising
    assert rising[-1] > 5 * rising[0]
    assert worth(returns, 60.0) < rising[0] / 20  # it does not come any more


def test_the_worth_of_a_fresh_leaf_is_its_chance_over_the_time_it_would_be_held() -> None:
    # One half comes back at about 30 s, the other never: to hold to the end of the bin of 30 s
    # takes 25.4 s and then, of each that comes back in it, half of its 6.6 s.
    returns = returns_after([30.0] * 50, gone=50)
    low, high = (returns.edges[returns.bin(30.0) + side] for side in (0, 1))
    expected = 0.5 / (low + (high - low) * 0.75)
    assert worth(returns, 0.0) == pytest.approx(expected, rel=1e-3)
    assert worth(returns, low) == pytest.approx(0.5 / ((high - low) * 0.75), rel=1e-3)


def test_heavy_tails_make_the_older_worth_less() -> None:
    ages = [0.5 * 1.2**k for k in range(40)]  # as many in each octave
    returns = returns_after(ages, gone=20)
    falling = [worth(returns, age) for age in (0.6, 2.0, 8.0, 32.0, 128.0)]
    assert sorted(falling, reverse=True) == falling


def test_those_that_still_wait_count_only_for_as_long_as_they_have_waited() -> None:
    # 10 of 10 came back at 30 s; 90 more are 5 s old, which says nothing of 30 s.
    alone = returns_after([30.0] * 10)
    returns = Returns(PLAIN)
    for _ in range(10):
        returns.came_back(0, 30.0)
    returns.rebuild(np.zeros(90, np.int64), np.full(90, 5.0))
    assert worth(returns, 10.0) == pytest.approx(worth(alone, 10.0), rel=1e-3)
    # Had they waited for 60 s, it would.
    returns.rebuild(np.zeros(90, np.int64), np.full(90, 60.0))
    assert worth(returns, 10.0) < 0.2 * worth(alone, 10.0)


def test_one_that_is_not_watched_any_more_counts_for_as_long_as_it_was() -> None:
    returns, alone = Returns(PLAIN), returns_after([30.0] * 10)
    for _ in range(10):
        returns.came_back(0, 30.0)
    for _ in range(90):
        returns.lost(0, 5.0)
    returns.rebuild(*NOBODY)
    assert worth(returns, 10.0) == pytest.approx(worth(alone, 10.0), rel=1e-3)


def test_a_class_of_which_little_is_known_is_taken_for_like_the_others() -> None:
    returns = Returns(ReturnsConfig())
    for _ in range(500):
        returns.came_back(returns.replied(3, 0), 20.0)
    returns.rebuild(*NOBODY)
    known, unknown = (returns.rows[returns.replied(gap, 0)] for gap in (3, 4))
    at = returns.bin(15.0)
    assert unknown[at] > 2 * unknown[returns.bin(60.0)]
    assert known[at] > unknown[at]


def test_before_anything_is_seen_the_older_is_worth_no_more() -> None:
    rows = Returns(ReturnsConfig()).rows
    for row in rows:
        assert all(0 < later <= earlier for earlier, later in pairwise(row[1:-1]))


def test_what_is_long_past_is_forgotten() -> None:
    returns = Returns(ReturnsConfig())
    for _ in range(200):
        returns.came_back(0, 5.0)
    returns.rebuild(*NOBODY)
    before = worth(returns, 4.0)
    for _ in range(1000):
        returns.rebuild(*NOBODY)
    assert worth(returns, 4.0) < 0.1 * before


def test_calls_that_are_away_for_too_long_count_as_gone_once() -> None:
    returns = Returns(PLAIN)
    calls = Calls(returns, 8)
    call = Call(0.0, None, 0)
    calls.enter(call, 0.0, waits=True)
    calls.note_end(call, 10.0)
    calls.rebuild(500.0)
    assert calls.waits(call)
    calls.rebuild(901.0)
    assert not calls.waits(call)
    reached = returns._reached.copy()
    assert reached[returns.running(0)].tolist() == [1.0] * returns.bins
    calls.rebuild(2000.0)
    assert (returns._reached == reached).all()


def test_a_call_that_is_continued_counts_from_its_arrival_and_from_its_replys_end() -> None:
    returns = Returns(PLAIN)
    calls = Calls(returns, 8)
    call = Call(100.0, None, 0)
    calls.enter(call, 100.0, waits=True)
    calls.note_tool(call)
    calls.note_end(call, 130.0)
    calls.came_back(call, 140.0)
    returns.rebuild(*NOBODY)
    came = {(row, column) for row, column in zip(*np.nonzero(returns._came), strict=True)}
    assert came == {
        (returns.running(0), returns.bin(40.0)),
        (returns.replied(0, 1), returns.bin(10.0)),
    }
