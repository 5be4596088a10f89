"""Stop strings in text that comes in pieces; see also test_text."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from server.stop_strings import StopStrings

WHOLE = "alpha beta gamma delta"


def ended(
    stops: tuple[str, ...], pieces: list[str], *, included: bool = False, early: int = 0
) -> tuple[str, str | None]:
    """The text of pieces, of which the first ``early`` cannot end it, and what has ended it."""
    finder, text = StopStrings(stops, included), ""
    for number, piece in enumerate(pieces, start=1):
        shown, stop = finder.push(piece, may_end=number > early)
        text += shown
        if stop is not None:
            return text, stop
    return text + finder.flush(), None


@pytest.mark.parametrize(
    ("stops", "without", "within", "stop"),
    [
        (("beta gamma",), "alpha ", "alpha beta gamma", "beta gamma"),
        (("ga",), "alpha beta ", "alpha beta ga", "ga"),
        (("zzz", "delta"), "alpha beta gamma ", WHOLE, "delta"),
        (("gamma", "beta"), "alpha ", "alpha beta", "beta"),
        (("delta!",), WHOLE, WHOLE, None),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_the_stop_string_is_told_and_shown_only_where_it_was_asked_for(
    stops: tuple[str, ...], without: str, within: str, stop: str | None, size: int
) -> None:
    pieces = [WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]
    assert ended(stops, pieces) == (without, stop)
    assert ended(stops, pieces, included=True) == (within, stop)


@pytest.mark.parametrize(
    ("early", "text", "stop"),
    [
        (0, "x", "ab"),
        (2, "x", "ab"),
        (3, "xab", "ab"),
        (4, "xab", "ab"),
        (5, "xabab", "c"),
        (6, "xababc", None),
    ],
)
def test_a_string_ends_the_text_if_it_is_complete_only_when_it_may(
    early: int, text: str, stop: str | None
) -> None:
    """The third letter completes the first string, the fifth the second, the sixth the last."""
    assert ended(("ab", "c"), list("xababc"), early=early) == (text, stop)


def test_a_short_string_inside_of_what_is_held_back_was_there_too_early() -> None:
    assert ended(("ab", "xabc"), ["xab", "q"], early=1) == ("xabq", None)
    assert ended(("ab", "xabc"), ["xab", "c"], early=1) == ("", "xabc")
    assert ended(("b", "abc"), ["a", "b", "b"], early=2) == ("ab", "b")


def test_the_first_string_in_the_text_so_far_ends_it_wherever_it_is_cut() -> None:
    chance = random.Random(3)

    def letters(count: int) -> str:
        return "".join(chance.choice("ab") for _ in range(count))

    for _ in range(300):
        text, stops = letters(12), (letters(chance.randint(1, 3)), letters(chance.randint(2, 4)))
        cuts = [0, *sorted(chance.sample(range(13), 4)), 12]
        so_far = [text[:cut] for cut in cuts if any(stop in text[:cut] for stop in stops)]
        expected: tuple[str, str | None] = (text, None)
        if so_far:
            place, stop = min(
                ((so_far[0].find(stop), stop) for stop in stops if stop in so_far[0]),
                key=lambda each: each[0],
            )
            expected = (text[:place], stop)
        assert ended(stops, [text[i:j] for i, j in pairwise(cuts)]) == expected
