"""Which beams are followed and kept, on distributions that can be worked out by hand."""

from __future__ import annotations

import math
import random
from typing import Literal

import pytest

from server.beams import BeamRules, Beams, NextToken
from tests.server.naive_beams import Tokens, naive_beam_search

A, B, END = 0, 1, 2
ENDS = frozenset({END})


def likeliest(**probabilities: float) -> list[tuple[int, float]]:
    """Next tokens by their names, with log-probabilities, likeliest first."""
    names = {"a": A, "b": B, "end": END}
    tokens = [(names[name], math.log(value)) for name, value in probabilities.items()]
    return sorted(tokens, key=lambda each: -each[1])


def kept(beams: Beams) -> list[tuple[Tokens, str]]:
    return [(each.beam.tokens, each.finish_reason) for each in beams.kept]


def test_the_likeliest_whole_answer_wins_though_its_first_token_is_not_the_likeliest() -> None:
    beams = Beams(BeamRules(2, 2, ENDS))
    assert beams.step([likeliest(a=0.5, b=0.4, end=0.1)]) == [NextToken(0, A), NextToken(0, B)]
    after_a, after_b = likeliest(a=0.4, b=0.3, end=0.3), likeliest(a=0.05, b=0.05, end=0.9)
    assert beams.step([after_a, after_b]) == []
    # 0.4 * 0.9 = 0.36 beats 0.5 * 0.4 = 0.2.
    assert kept(beams) == [((B, END), "stop"), ((A, A), "length")]
    assert [each.score for each in beams.kept] == pytest.approx(
        [math.log(0.36) / 2, math.log(0.2) / 2]
    )


def test_several_beams_may_continue_one_and_another_dies() -> None:
    beams = Beams(BeamRules(2, 5, ENDS))
    beams.step([likeliest(a=0.6, b=0.3, end=0.1)])
    after_a, after_b = likeliest(a=0.5, b=0.4, end=0.1), likeliest(a=0.7, b=0.2, end=0.1)
    # aa 0.30, ab 0.24, ba 0.21: nothing goes on from b.
    assert beams.step([after_a, after_b]) == [NextToken(0, A), NextToken(0, B)]


def test_an_ending_is_kept_only_if_it_is_among_the_best_of_its_step() -> None:
    beams = Beams(BeamRules(1, 3, ENDS))
    assert beams.step([likeliest(a=0.6, end=0.4)]) == [NextToken(0, A)]
    assert beams.kept == []


def test_as_many_go_on_as_there_are_beams_though_the_best_all_end() -> None:
    beams = Beams(BeamRules(2, 9, ENDS, early_stopping="never"))
    beams.step([likeliest(a=0.5, b=0.5)])
    after = likeliest(end=0.8, a=0.15, b=0.05)
    assert beams.step([after, after]) == [NextToken(0, A), NextToken(1, A)]
    assert kept(beams) == [((A, END), "stop"), ((B, END), "stop")]


@pytest.mark.parametrize(
    ("penalty", "best_first"), [(0.0, [(END,), (A, END)]), (2.0, [(A, END), (END,)])]
)
def test_the_length_penalty_decides_between_short_and_long(
    penalty: float, best_first: list[Tokens]
) -> None:
    beams = Beams(BeamRules(2, 2, ENDS, penalty))
    beams.step([likeliest(end=0.6, a=0.39, b=0.01)])
    beams.step([likeliest(end=0.9, a=0.1), likeliest(a=1.0)])
    # ln 0.6 = -0.51; ln 0.351 = -1.05, over 2 ** 2 it is -0.26.
    assert [each.beam.tokens for each in beams.kept] == best_first


@pytest.mark.parametrize(("early", "over"), [(True, True), (False, False), ("never", False)])
def test_enough_answers_end_the_search_at_once_only_if_that_is_asked_for(
    early: bool | Literal["never"], over: bool
) -> None:
    beams = Beams(BeamRules(2, 9, ENDS, early_stopping=early))
    beams.step([likeliest(a=0.9, end=0.06, b=0.04)])
    # "end" and "a end" are kept, but "a a" is better than "end": ln 0.45 / 2 > ln 0.06.
    assert (beams.step([likeliest(a=0.5, end=0.4, b=0.1), likeliest(a=1.0)]) == []) is over


@pytest.mark.parametrize(("early", "over"), [(False, True), ("never", False)])
def test_never_means_that_a_worse_beam_may_still_become_better(
    early: bool | Literal["never"], over: bool
) -> None:
    beams = Beams(BeamRules(1, 4, ENDS, early_stopping=early))
    # ln 0.45 = -0.80 is worse than ln 0.5 = -0.69; over 4 tokens it would be -0.20.
    assert (beams.step([likeliest(end=0.5, a=0.45)]) == []) is over


def test_where_longer_is_worse_no_better_score_is_hoped_for_than_the_present_one() -> None:
    beams = Beams(BeamRules(2, 9, ENDS, length_penalty=-1.0, early_stopping="never"))
    beams.step([likeliest(a=0.9, end=0.06, b=0.04)])
    # Kept are "a end", 2 ln 0.27 = -2.6, and "end", ln 0.06 = -2.8; "a a" has 2 ln 0.54 = -1.2
    # now, and would have 9 ln 0.54 = -5.5 at the end.
    assert beams.step([likeliest(a=0.6, end=0.3, b=0.1), likeliest(a=1.0)]) != []


def test_lists_for_another_number_of_beams_are_refused() -> None:
    with pytest.raises(ValueError, match="2 lists came for 1 beams"):
        Beams(BeamRules(2, 4, ENDS)).step([[], []])


class RandomModel:
    """Seven tokens, whose probabilities after any others are random and fixed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, tokens: Tokens) -> list[float]:
        draw = random.Random(f"{self._seed} {tokens}")
        weights = [draw.random() ** 3 for _ in range(7)]
        return [math.log(weight / sum(weights)) for weight in weights]


@pytest.mark.parametrize("early", [False, True, "never"])
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("ends", [{0}, {0, 3}, {5}], ids=str)
def test_random_searches_find_what_the_naive_search_finds(
    ends: set[int], width: int, early: bool | Literal["never"]
) -> None:
    for seed in range(40):
        model, penalty = RandomModel(seed), (-1.0, 0.0, 0.7, 1.0, 2.5)[seed % 5]
        rules = BeamRules(width, 1 + seed % 7, frozenset(ends), penalty, early)
        beams = Beams(rules)
        followed: list[Tokens] = [()]
        while followed:
            given = [
                sorted(enumerate(model(tokens)), key=lambda each: -each[1])[: rules.continuations]
                for tokens in followed
            ]
            followed = [(*followed[place], token) for place, token in beams.step(given)]
        expected = naive_beam_search(
            model, width, rules.max_tokens, rules.end_tokens, penalty, early
        )
        assert [each.beam.tokens for each in beams.kept] == [each.tokens for each in expected]
        assert [each.score for each in beams.kept] == pytest.approx(
            [each.score for each in expected]
        )
