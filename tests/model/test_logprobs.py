"""Log-probabilities: values by hand, in order, and never anything that JSON cannot say."""

from __future__ import annotations

import math

import pytest
import torch

from radix_engine.model.logprobs import FLOOR, token_logprobs
from radix_engine.model.token_logprob import TokenLogprob

LOGITS = torch.tensor([0.05, 0.4, 0.15, 0.25, 0.15]).log() + 3


def test_values_are_those_of_the_models_distribution() -> None:
    (one,) = token_logprobs(LOGITS.unsqueeze(0), [3], [2])
    assert one.token == 3
    assert one.logprob == pytest.approx(math.log(0.25), abs=1e-6)
    assert [token for token, _ in one.top] == [1, 3]
    assert [value for _, value in one.top] == pytest.approx(
        [math.log(0.4), math.log(0.25)], abs=1e-6
    )


def test_each_row_has_as_many_as_it_asks_for_and_equals_come_by_id() -> None:
    rows = token_logprobs(LOGITS.expand(4, -1), [0, 1, 2, 4], [0, 5, 1, 20])
    assert [[token for token, _ in row.top] for row in rows] == [
        [],
        [1, 3, 2, 4, 0],
        [1],
        [1, 3, 2, 4, 0],
    ]
    assert rows[1].logprob == rows[1].top[0][1]


def test_nothing_lies_below_the_floor() -> None:
    logits = torch.tensor([[0.0, -2e4, float("-inf"), -9000.0]])
    (one,) = token_logprobs(logits, [2], [4])
    assert one == TokenLogprob(2, FLOOR, ((0, 0.0), (3, -9000.0), (1, FLOOR), (2, FLOOR)))
    assert FLOOR == -9999.0


@pytest.mark.parametrize("rows", [1, 64, 65, 200])
def test_a_row_does_not_depend_on_the_others(rows: int) -> None:
    logits = torch.randn(rows, 300, generator=torch.Generator().manual_seed(rows)) * 4
    tokens = [row % 300 for row in range(rows)]
    tops = [row % 4 * 5 for row in range(rows)]
    together = token_logprobs(logits, tokens, tops)
    alone = [
        token_logprobs(logits[row : row + 1], [tokens[row]], [tops[row]])[0] for row in range(rows)
    ]
    assert together == alone


def test_no_rows_give_nothing() -> None:
    assert token_logprobs(torch.empty(0, 5), [], []) == []
