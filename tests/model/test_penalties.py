"""Bias and penalties: values by hand, in their order, counted as an answer grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from radix_engine.model.penalties import Change, TokenCounts, change_logits
from radix_engine.model.sampling import SampleRow, sample
from radix_engine.model.sampling_params import SamplingParams

LOGITS = [2.0, -1.0, 0.5, 3.0]
PROMPT = [0, 1, 0]
ANSWER = [3, 3, 1]


def counted(prompt: Sequence[int] = PROMPT, answer: Sequence[int] = ANSWER) -> TokenCounts:
    counts = TokenCounts(prompt)
    for token in answer:
        counts.add(token)
    return counts


def changed(counts: TokenCounts, **params: Any) -> list[float]:
    logits = torch.tensor([LOGITS])
    change_logits(logits, [Change(SamplingParams(**params), counts)])
    values: list[float] = logits[0].tolist()
    return values


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"logit_bias": {2: 1.5, 0: -100}}, [-98.0, -1.0, 2.0, 3.0]),
        # Above 0 divided, below multiplied; prompt and answer alike, once however often.
        ({"repetition_penalty": 2.0}, [1.0, -2.0, 0.5, 1.5]),
        ({"repetition_penalty": 0.5}, [4.0, -0.5, 0.5, 6.0]),
        # Of the answer alone: token 3 twice, token 1 once.
        ({"frequency_penalty": 0.5}, [2.0, -1.5, 0.5, 2.0]),
        ({"frequency_penalty": -2.0}, [2.0, 1.0, 0.5, 7.0]),
        ({"presence_penalty": 0.25}, [2.0, -1.25, 0.5, 2.75]),
        # 3 -> 3 + 1 -> 4 / 2 -> 2 - 2 * 0.5 -> 1 - 0.25, and no other order gives that.
        (
            {
                "logit_bias": {3: 1.0},
                "repetition_penalty": 2.0,
                "frequency_penalty": 0.5,
                "presence_penalty": 0.25,
            },
            [1.0, -2.75, 0.5, 0.75],
        ),
        ({}, LOGITS),
    ],
)
def test_each_change_has_the_value_that_its_definition_gives(
    params: dict[str, Any], expected: list[float]
) -> None:
    assert changed(counted(), **params) == expected


def test_a_bias_may_turn_a_logit_negative_before_the_repetition_penalty_sees_it() -> None:
    assert changed(counted(), logit_bias={0: -3.0}, repetition_penalty=2.0)[0] == -2.0


def test_rows_are_changed_by_their_own_parameters_alone() -> None:
    logits = torch.tensor([LOGITS] * 4)
    changes = [
        Change(SamplingParams(presence_penalty=0.5), counted([], [2])),
        Change(SamplingParams(logit_bias={1: 5}), TokenCounts()),
        Change(SamplingParams(repetition_penalty=2.0), counted([3], [])),
        Change(SamplingParams(frequency_penalty=1.0), counted([], [])),
    ]
    change_logits(logits, changes)
    assert logits.tolist() == [
        [2.0, -1.0, 0.0, 3.0],
        [2.0, 4.0, 0.5, 3.0],
        [2.0, -1.0, 0.5, 1.5],
        LOGITS,
    ]


def test_counts_grow_one_by_one_and_a_copy_goes_its_own_way() -> None:
    counts = counted([5, 6, 5], [])
    other = counts.copy()
    for token in (6, 7, 8, 8):
        counts.add(token)
    assert (list(counts.tokens), list(counts.counts)) == ([5, 6, 7, 8], [0, 1, 1, 2])
    assert (list(other.tokens), list(other.counts)) == ([5, 6], [0, 0])
    other.add(8)
    assert (list(other.tokens), list(other.counts)) == ([5, 6, 8], [0, 0, 1])
    assert list(counts.counts) == [0, 1, 1, 2]


def test_a_penalty_makes_greedy_answers_leave_a_loop() -> None:
    params = SamplingParams(temperature=0, presence_penalty=1.5)
    counts, answer = TokenCounts(), []
    for index in range(4):
        (token,) = sample(
            torch.tensor([[0.0, 2.0, 1.0, 0.2]]), [SampleRow(params, 0, index, counts)]
        )
        counts.add(token)
        answer.append(token)
    assert answer == [
        1,
        2,
        1,
        1,
    ]  # 2; then 1 beats 2 - 1.5; then all seen: 0.5 beats 0.2, 0 and -0.5


def test_the_callers_logits_stay_as_they_are() -> None:
    logits = torch.tensor([LOGITS, LOGITS])
    rows = [
        SampleRow(SamplingParams(temperature=0, logit_bias={2: 100}), 0, 0),
        SampleRow(SamplingParams(temperature=0), 0, 0),
    ]
    assert sample(logits, rows) == [2, 3]
    assert logits.tolist() == [LOGITS, LOGITS]


def test_penalties_without_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="counts"):
        sample(torch.zeros(1, 4), [SampleRow(SamplingParams(presence_penalty=1), 0, 0)])


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("min_p", -0.1, "0 to 1, not -0.1"),
        ("min_p", 1.1, "0 to 1, not 1.1"),
        ("min_p", "0", "not '0'"),
        ("repetition_penalty", 0, "0.01 to 100, not 0"),
        ("repetition_penalty", 100.1, "0.01 to 100, not 100.1"),
        ("repetition_penalty", float("nan"), "not nan"),
        ("presence_penalty", 2.1, "-2 to 2, not 2.1"),
        ("presence_penalty", None, "-2 to 2, not None"),
        ("frequency_penalty", -2.1, "-2 to 2, not -2.1"),
        ("frequency_penalty", True, "not True"),
        ("logit_bias", [1], "not [1]"),
        ("logit_bias", {"1": 1.0}, "not '1'"),
        ("logit_bias", {-1: 1.0}, "not -1"),
        ("logit_bias", {1: 100.5}, "[1] must be a number from -100 to 100, not 100.5"),
        ("logit_bias", {1: float("nan")}, "not nan"),
    ],
)
def test_a_value_out_of_range_is_refused_naming_field_range_and_value(
    field: str, value: object, words: str
) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=f"^{field}") as refused:
        SamplingParams(**values)
    assert words in str(refused.value)


def test_the_bias_is_kept_as_it_was_given() -> None:
    bias = {1: 1.0}
    params = SamplingParams(logit_bias=bias)
    bias[2] = 2.0
    assert params.logit_bias == {1: 1.0}
    assert hash(params) == hash(SamplingParams(logit_bias={1: 1.0}))
