"""All ways to choose a token together: as a naive sampler does it row by row, in any batch."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.model import sampling_draw
from radix_engine.model.penalties import TokenCounts
from radix_engine.model.sampling import SampleRow, sample
from radix_engine.model.sampling_params import SamplingParams
from tests.model.naive_sampling import naive_token
from tests.model.test_sampling import LOGITS, assert_frequencies, draw

SIZES = (7, 60, 700)  # all tokens are few, and few of all


class Case(NamedTuple):
    params: SamplingParams
    seed: int
    prompt: list[int]
    answer: list[int]
    noise: int
    steps: float  # logits are multiples of this, where above 0: equals are common

    def logits(self, size: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.noise)
        values = torch.randn(size, generator=generator) * 3
        return (values / self.steps).round() * self.steps if self.steps else values

    def row(self) -> SampleRow:
        counts = TokenCounts(self.prompt)
        for token in self.answer:
            counts.add(token)
        return SampleRow(self.params, self.seed, len(self.answer), counts)


TOKENS = st.lists(st.integers(0, 6), max_size=8)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.31, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.9713, 0.8391, 0.313, 0.0117]),
    top_k=st.sampled_from([0, 1, 3, 50, 250, 256, 400]),
    min_p=st.sampled_from([0.0, 0.0317, 0.213, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 1.1, -0.9]),
    frequency_penalty=st.sampled_from([0.0, 0.7, -2.0]),
    logit_bias=st.dictionaries(st.integers(0, 6), st.sampled_from([-100.0, -1.5, 2.5]), max_size=3),
)
CASES = st.builds(
    Case,
    PARAMS,
    st.integers(-(2**63), 2**63 - 1),
    TOKENS,
    TOKENS,
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.0, 0.5]),
)


@settings(deadline=None)
@given(st.sampled_from(SIZES), st.lists(CASES, min_size=1, max_size=6))
def test_any_batch_gives_each_row_the_token_that_it_gets_alone_and_from_a_naive_sampler(
    size: int, cases: list[Case]
) -> None:
    logits = torch.stack([case.logits(size) for case in cases])
    before = logits.clone()
    tokens = sample(logits, [case.row() for case in cases])
    assert torch.equal(logits, before)
    for index, case in enumerate(cases):
        assert sample(logits[index : index + 1], [case.row()]) == [tokens[index]]
        expected = naive_token(
            logits[index].tolist(), case.params, case.seed, case.prompt, case.answer
        )
        assert tokens[index] == expected


def test_min_p_leaves_what_has_this_share_of_the_likeliest() -> None:
    # 0.3 * 0.4 = 0.12: the tokens with 0.1 and 0.05 are out.
    expected = {1: 0.4 / 0.85, 3: 0.25 / 0.85, 5: 0.2 / 0.85}
    assert_frequencies(draw(LOGITS, min_p=0.3), expected)
    assert_frequencies(draw(LOGITS, min_p=1.0), {1: 1.0})


def test_min_p_counts_after_temperature() -> None:
    # Squares: 0.16, 0.0625, 0.04, ...; 0.3 * 0.16 = 0.048.
    total = 0.16 + 0.0625
    assert_frequencies(
        draw(LOGITS, min_p=0.3, temperature=0.5), {1: 0.16 / total, 3: 0.0625 / total}
    )


def test_top_p_counts_the_probabilities_that_min_p_leaves() -> None:
    # Renormalised 0.47 and 0.29 reach 0.7; of all tokens 0.4 and 0.25 do not.
    assert_frequencies(draw(LOGITS, min_p=0.3, top_p=0.7), {1: 0.4 / 0.65, 3: 0.25 / 0.65})


def test_top_k_and_min_p_both_hold() -> None:
    assert_frequencies(draw(LOGITS, min_p=0.3, top_k=2), {1: 0.4 / 0.65, 3: 0.25 / 0.65})
    assert_frequencies(
        draw(LOGITS, min_p=0.6, top_k=3), {1: 0.4 / 0.65, 3: 0.25 / 0.65}
    )  # 0.24: token 5 with 0.2 is out


def test_a_bias_shifts_probabilities_by_its_exponential() -> None:
    # Token 4: 0.1 * e^ln(4) = 0.4.
    expected = {0: 0.05 / 1.3, 1: 0.4 / 1.3, 3: 0.25 / 1.3, 4: 0.4 / 1.3, 5: 0.2 / 1.3}
    assert_frequencies(draw(LOGITS, logit_bias={4: math.log(4)}), expected)


@pytest.mark.parametrize("params", [{"top_k": 40}, {"top_p": 0.9}, {"top_k": 40, "top_p": 0.9}])
def test_a_usual_batch_needs_no_sort(
    params: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> list[int]:
        raise AssertionError("all tokens were sorted")

    monkeypatch.setattr(sampling_draw, "_sorted", refuse)
    logits = torch.randn(8, 5000, generator=torch.Generator().manual_seed(1)) * 4
    rows = [SampleRow(SamplingParams(**params), seed, 0) for seed in range(8)]  # type: ignore[arg-type]
    assert len(sample(logits, rows)) == 8


def test_rows_that_turn_out_to_need_a_sort_keep_their_own_way() -> None:
    # The first row's 250 likeliest cannot be told from equals behind them, so it is sorted after
    # the second, which is sorted from the start.
    equals = Case(SamplingParams(temperature=0.31, top_k=250), 0, [], [], 2, 0.5)
    wide = Case(SamplingParams(temperature=0.31, top_k=400), 0, [], [], 0, 0.0)
    logits = torch.stack([equals.logits(700), wide.logits(700)])
    alone = [sample(logits[i : i + 1], [case.row()])[0] for i, case in enumerate((equals, wide))]
    assert sample(logits, [equals.row(), wide.row()]) == alone


def test_equals_at_the_end_of_the_few_are_told_apart_by_their_ids() -> None:
    # 3 above 600 equals: of these top_k takes the lowest ids, whatever a partial sort finds first.
    logits = torch.zeros(1, 603)
    logits[0, 600:] = 1.0
    tokens = {
        sample(logits, [SampleRow(SamplingParams(top_k=5, temperature=5.0), seed, 0)])[0]
        for seed in range(200)
    }
    assert tokens == {600, 601, 602, 0, 1}


def test_a_flat_distribution_with_top_p_falls_back_to_all_tokens() -> None:
    logits = torch.zeros(1, 1000)
    tokens = {
        sample(logits, [SampleRow(SamplingParams(top_p=0.5), seed, 0)])[0] for seed in range(300)
    }
    assert max(tokens) < 500
    assert len(tokens) > 200


def test_a_nearly_flat_distribution_is_not_cut_to_the_few_likeliest_tokens() -> None:
    logits = torch.randn(1, 1000, generator=torch.Generator().manual_seed(3)) * 0.1
    params = SamplingParams(top_p=0.8)
    tokens = [sample(logits, [SampleRow(params, seed, 0)])[0] for seed in range(100)]
    assert tokens == [naive_token(logits[0].tolist(), params, seed, [], []) for seed in range(100)]
    few = set(logits[0].topk(256).indices.tolist())
    assert not few.issuperset(tokens)
