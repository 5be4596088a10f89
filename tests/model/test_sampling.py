"""Choosing tokens: greedy, by frequency, and independent of everything but seed and index."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from radix_engine.model.sampling import SampleRow, sample, sample_later, seed_of_answer, uniform
from radix_engine.model.sampling_params import SamplingParams

PROBABILITIES = torch.tensor([0.05, 0.4, 0.0, 0.25, 0.1, 0.2])
LOGITS = PROBABILITIES.log() + 3.0
DRAWS = 4000


def draw(logits: torch.Tensor, seed: int = 1, **params: Any) -> Counter[int]:
    rows = [SampleRow(SamplingParams(**params), seed, index) for index in range(DRAWS)]
    return Counter(sample(logits.expand(DRAWS, -1), rows))


def assert_frequencies(counts: Counter[int], expected: dict[int, float]) -> None:
    """Within five standard deviations, so that a right sampler fails by chance never."""
    assert set(counts) == set(expected)
    for token, probability in expected.items():
        deviation = math.sqrt(DRAWS * probability * (1 - probability))
        assert abs(counts[token] - DRAWS * probability) <= 5 * deviation + 1e-9


def test_without_limits_tokens_come_with_the_models_probabilities() -> None:
    assert_frequencies(draw(LOGITS), {0: 0.05, 1: 0.4, 3: 0.25, 4: 0.1, 5: 0.2})


def test_temperature_sharpens_and_flattens() -> None:
    squared = PROBABILITIES**2 / (PROBABILITIES**2).sum()
    sharp = {i: float(p) for i, p in enumerate(squared) if p > 0}
    assert_frequencies(draw(LOGITS, temperature=0.5), sharp)
    root = PROBABILITIES.sqrt() / PROBABILITIES.sqrt().sum()
    flat = {i: float(p) for i, p in enumerate(root) if p > 0}
    assert_frequencies(draw(LOGITS, temperature=2.0), flat)


def test_top_k_leaves_the_k_likeliest() -> None:
    expected = {1: 0.4 / 0.85, 3: 0.25 / 0.85, 5: 0.2 / 0.85}
    assert_frequencies(draw(LOGITS, top_k=3), expected)


def test_top_p_leaves_the_smallest_set_that_reaches_the_sum() -> None:
    assert_frequencies(draw(LOGITS, top_p=0.6), {1: 0.4 / 0.65, 3: 0.25 / 0.65})
    assert_frequencies(draw(LOGITS, top_p=0.39), {1: 1.0})
    expected = {1: 0.4 / 0.85, 3: 0.25 / 0.85, 5: 0.2 / 0.85}
    assert_frequencies(draw(LOGITS, top_p=0.7), expected)


def test_top_p_counts_the_probabilities_that_top_k_leaves() -> None:
    # Of the three likeliest, renormalised: 0.47, 0.29, 0.24. Two of them reach 0.7; of all six
    # tokens it would take three.
    assert_frequencies(draw(LOGITS, top_k=3, top_p=0.7), {1: 0.4 / 0.65, 3: 0.25 / 0.65})


@pytest.mark.parametrize("params", [{"temperature": 0}, {"top_k": 1}, {"top_p": 0}])
def test_the_likeliest_token_is_all_that_is_left(params: dict[str, Any]) -> None:
    assert draw(LOGITS, **params) == {1: DRAWS}


def test_of_equally_likely_tokens_the_first_is_greedy() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0]])
    for params in ({"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0}):
        assert sample(logits, [SampleRow(SamplingParams(**params), 3, 0)]) == [1]


@pytest.mark.parametrize(
    "params",
    [{}, {"top_k": 20}, {"top_p": 0.8}, {"temperature": 0.7, "top_k": 9, "top_p": 0.5}],
)
def test_a_token_does_not_depend_on_its_batch_neighbours(params: dict[str, Any]) -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 300) * 3
    others = [
        SamplingParams(temperature=0),
        SamplingParams(top_k=3, seed=1),
        SamplingParams(top_p=0.1),
        SamplingParams(temperature=1.5),
    ]
    for index in range(40):
        row = SampleRow(SamplingParams(**params), 77, index)
        alone = sample(logits[:1], [row])
        batch = [row, *(SampleRow(other, index, 5) for other in others)]
        assert sample(logits, batch)[:1] == alone
        assert sample(logits.flip(0), batch[::-1])[-1:] == alone


def test_the_same_seed_repeats_an_answer_and_another_does_not() -> None:
    logits = torch.zeros(30, 1000)

    def answer(seed: int) -> list[int]:
        return sample(logits, [SampleRow(SamplingParams(), seed, i) for i in range(30)])

    assert answer(5) == answer(5)
    assert answer(5) != answer(6)
    assert len(set(answer(5))) > 20


def test_the_random_number_is_fixed_for_good() -> None:
    # A change here would change every answer that somebody made repeatable with a seed.
    assert uniform(0, 0) == 0.3859926107094097
    numbers = [uniform(seed, index) for seed in range(-20, 20) for index in range(50)]
    assert all(0 <= number < 1 for number in numbers)
    assert abs(sum(numbers) / len(numbers) - 0.5) < 0.03


def test_tokens_without_probability_are_never_drawn_at_the_edges() -> None:
    never = float("-inf")
    logits = torch.tensor([[never, 0.0, never, 0.0, never]])
    tokens = {
        sample(logits, [SampleRow(SamplingParams(top_p=p), 0, i)])[0]
        for i in range(200)
        for p in (1.0, 0.99)
    }
    assert tokens == {1, 3}


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e300])
def test_extreme_temperatures_do_not_overflow(temperature: float) -> None:
    logits = torch.tensor([[1e4, -1e4, 9e3]])
    row = SampleRow(SamplingParams(temperature=temperature, top_k=2), 0, 0)
    assert sample(logits, [row])[0] in (0, 2)


def test_bf16_logits_and_an_empty_batch_are_taken() -> None:
    assert sample(torch.empty(0, 10), []) == []
    assert sample(torch.eye(4).to(torch.bfloat16)[2:3], [_greedy()]) == [2]


def test_rows_that_do_not_fit_the_logits_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit 1 rows"):
        sample(torch.zeros(2, 4), [_greedy()])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", -0.1),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_p", None),
        ("top_k", -2),
        ("top_k", 2**31),
        ("top_k", 1.5),
        ("top_k", False),
        ("seed", 2**63),
        ("seed", -(2**63) - 1),
        ("seed", 0.5),
    ],
)
def test_a_value_out_of_range_is_refused_naming_the_field(field: str, value: object) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=f"^{field} must be "):
        SamplingParams(**values)


def test_top_k_0_and_minus_1_mean_no_limit() -> None:
    assert draw(LOGITS, top_k=0) == draw(LOGITS, top_k=-1) == draw(LOGITS)


def _greedy() -> SampleRow:
    return SampleRow(SamplingParams(temperature=0), 0, 0)


@pytest.mark.parametrize("seed", [0, 42, -(2**63), 2**63 - 1])
def test_each_of_several_answers_has_a_seed_of_its_own_and_the_first_the_seed_itself(
    seed: int,
) -> None:
    seeds = [seed_of_answer(seed, index) for index in range(128)]
    assert seeds[0] == seed
    assert len(set(seeds)) == 128
    assert len({uniform(each, 0) for each in seeds}) == 128
    assert [SamplingParams(seed=each).seed for each in seeds] == seeds  # all of them may be sent


def test_tokens_that_stay_on_the_device_are_those_that_are_looked_at() -> None:
    torch.manual_seed(1)
    logits = torch.randn(12, 700) * 3
    ways = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=1.0, top_k=5),
        SamplingParams(temperature=1.3, top_p=0.8),
        SamplingParams(temperature=1.0, top_k=400, top_p=0.9),
        SamplingParams(temperature=0.9, min_p=0.1),
    ]
    for count in (1, 6, 12):
        rows = [SampleRow(ways[i % 6], seed=i, index=3) for i in range(count)]
        assert sample_later(logits[:count], rows).tolist() == sample(logits[:count], rows)
    only = [SampleRow(ways[2], seed=i, index=0) for i in range(12)]
    assert sample_later(logits, only).tolist() == sample(logits, only)


def test_penalties_cannot_be_drawn_before_the_tokens_are_known() -> None:
    row = SampleRow(SamplingParams(repetition_penalty=1.2), seed=1, index=0)
    with pytest.raises(ValueError, match="need the tokens before"):
        sample_later(torch.zeros(1, 9), [row])
