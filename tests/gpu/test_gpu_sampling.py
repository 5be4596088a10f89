"""Tokens drawn by FlashInfer's kernels are those that torch draws. On a CPU, with a stand-in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from radix_engine.gpu.sampling import DRAW_TOLERANCE, FlashInferDrawer
from radix_engine.model.penalties import TokenCounts
from radix_engine.model.sampling import SampleRow, sample, sample_later
from radix_engine.model.sampling_draw import Draw, draw_later, invert
from radix_engine.model.sampling_params import SamplingParams
from tests.gpu.binding import bound_fake
from workloads.gpu.checks_sampling import misses

WAYS = (
    SamplingParams(),
    SamplingParams(temperature=0.4),
    SamplingParams(temperature=1.7, min_p=0.05),
    SamplingParams(top_k=2),
    SamplingParams(temperature=0.8, top_k=300),
    SamplingParams(top_p=0.2),
    SamplingParams(temperature=1.4, top_p=0.95),
    SamplingParams(top_k=20, top_p=0.7),
    SamplingParams(top_k=50, top_p=0.9, min_p=0.02),
    SamplingParams(top_k=10**6),
)


def drawer() -> FlashInferDrawer:
    return FlashInferDrawer(bound_fake())


def random_rows(count: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, list[Draw]]:
    """Others in every run; a test that fails shows their seed."""
    print(f"seed {torch.seed()}")
    logits = (torch.randn(count, width) * 3).to(dtype).to(torch.float32)
    numbers = torch.rand(count, dtype=torch.float64).tolist()
    return logits, [Draw(WAYS[row % len(WAYS)], number) for row, number in enumerate(numbers)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [7, 500, 2500])
def test_tokens_are_those_of_torch(dtype: torch.dtype, width: int) -> None:
    logits, draws = random_rows(60, width, dtype)
    before = logits.clone()
    tokens = drawer()(logits, draws)
    assert tokens.dtype == torch.int64
    assert torch.equal(logits, before)
    assert float(misses(logits, draws, tokens.tolist(), DRAW_TOLERANCE).max()) < DRAW_TOLERANCE
    # All but those whose number lies on a border, of which there is hardly ever one.
    assert int((tokens != draw_later(logits, draws)).sum()) <= 1


def test_each_kind_of_row_alone_has_the_token_of_torch() -> None:
    logits, draws = random_rows(len(WAYS), 400, torch.bfloat16)
    for row, each in enumerate(draws):
        tokens = drawer()(logits[row : row + 1], [each]).tolist()
        assert float(misses(logits[row : row + 1], [each], tokens, DRAW_TOLERANCE)) < DRAW_TOLERANCE


def drawn(logits: Sequence[float], number: float, **params: Any) -> int:
    row = torch.tensor([logits], dtype=torch.float32)
    [token] = drawer()(row, [Draw(SamplingParams(**params), number)]).tolist()
    return int(token)


EQUALS = (2.0, 5.0, 2.0, 2.0, 2.0, -9.0)


def test_of_equals_those_with_the_lowest_ids_are_left() -> None:
    assert {drawn(EQUALS, n / 40, top_k=3, temperature=9.0) for n in range(40)} == {1, 0, 2}
    # Six alike: three reach one half.
    assert {drawn([0.0] * 6, n / 40, top_p=0.4) for n in range(40)} == {0, 1, 2}
    # Of the three that top_k leaves it takes two.
    assert {drawn([0.0] * 6, n / 40, top_k=3, top_p=0.6) for n in range(40)} == {0, 1}


def test_equals_follow_each_other_by_id_with_equal_shares() -> None:
    # The likeliest has nearly nothing more than the others: fifths.
    logits = (0.0, 1e-6, 0.0, 0.0, 0.0, -99.0)
    found = [drawn(logits, n / 5 + 0.1, top_p=1 - 1e-9) for n in range(5)]
    assert found == [1, 0, 2, 3, 4]


def test_filters_apply_in_the_order_of_the_parameters() -> None:
    # min_p leaves 0.5, 0.25 and 0.125; of these top_k leaves 0.5 and 0.25, so two thirds and one;
    # of these top_p leaves the first. Of all eighths 0.6 would take two, and of three, too.
    logits = [math.log(p) for p in (0.25, 0.125, 0.5, 0.0625, 0.0625)]
    found = {drawn(logits, n / 20, min_p=0.2, top_k=2, top_p=0.6) for n in range(20)}
    assert found == {2}
    assert {drawn(logits, n / 20, top_p=0.6) for n in range(20)} == {2, 0}
    assert {drawn(logits, n / 20, min_p=0.2, top_p=0.6) for n in range(20)} == {2, 0}
    # Temperature comes before min_p: one half of a half is a quarter at temperature 1/2.
    assert {drawn(logits, n / 20, min_p=0.3, temperature=0.5) for n in range(20)} == {2}


def test_rows_without_top_p_lose_nothing_to_rows_with_it() -> None:
    fake = bound_fake()

    def losing(probs: torch.Tensor, top_p: torch.Tensor, is_deterministic: bool) -> Any:
        # As the real one may: what is left of 1 after rounding is left out.
        return fake.top_p_renorm_probs(
            probs, torch.where(top_p >= 1, 0.9995, top_p), is_deterministic=is_deterministic
        )

    kernels = SimpleNamespace(
        softmax=fake.softmax, top_k_mask_logits=fake.top_k_mask_logits, top_p_renorm_probs=losing
    )
    logits = torch.tensor([[0.6, 0.3999, 0.0001, 1e-9]]).log().expand(2, -1)
    draws = [Draw(SamplingParams(top_k=3), 0.99995), Draw(SamplingParams(top_p=0.5), 0.5)]
    assert FlashInferDrawer(kernels)(logits, draws).tolist() == [2, 0]


def test_sums_are_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    # A GPU adds up in the dtype that it is told, where a CPU has more bits for float32, too.
    seen: list[torch.dtype] = []

    def watched(cumulative: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        seen.extend((cumulative.dtype, numbers.dtype))
        return invert(cumulative, numbers)

    monkeypatch.setattr("radix_engine.gpu.sampling.invert", watched)
    assert drawn([0.0, 1.0], 0.5) == 1
    assert seen == [torch.float64, torch.float64]


def test_the_ends_of_the_range_have_a_token() -> None:
    logits = [math.log(p) for p in (0.25, 0.125, 0.5, 0.125)]
    last = math.nextafter(1.0, 0.0)
    assert [drawn(logits, n) for n in (0.0, last)] == [0, 3]
    for params in ({"top_k": 3}, {"top_p": 0.8}):
        assert [drawn(logits, n, **params) for n in (0.0, last)] == [2, 1]


@pytest.mark.parametrize("params", [{}, {"top_k": 2}, {"top_p": 0.99}, {"min_p": 0.01}])
def test_extreme_temperatures_neither_overflow_nor_vanish(params: dict[str, Any]) -> None:
    for temperature in (1e-300, 1e-30, 1e-6):
        assert drawn([1e4, -1e4, 9e3, -math.inf], 0.999, temperature=temperature, **params) == 0
    hot = {drawn([1e4, 9e3, -math.inf], n / 10, temperature=1e300, **params) for n in range(10)}
    assert hot == {0, 1}


@pytest.mark.parametrize("params", [{}, {"top_k": 4}, {"top_p": 0.999}, {"top_k": 2, "min_p": 0.1}])
def test_tokens_that_are_forbidden_never_come(params: dict[str, Any]) -> None:
    logits = [-math.inf, 0.0, -math.inf, 1.0, -math.inf, -math.inf]
    assert {drawn(logits, n / 40, **params) for n in range(40)} == {1, 3}
    assert drawn(logits, math.nextafter(1.0, 0.0), **params) in (1, 3)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_rows_that_are_no_numbers_get_some_token_and_harm_no_other(broken: float) -> None:
    logits, draws = random_rows(9, 50, torch.float32)
    expected = drawer()(logits, draws)
    logits[4], logits[7, 3] = broken, broken
    found = drawer()(logits, draws)
    assert bool(((found >= 0) & (found < 50)).all())
    others = [0, 1, 2, 3, 5, 6, 8]
    assert torch.equal(found[others], expected[others])


def test_a_row_does_not_depend_on_who_shares_the_batch() -> None:
    logits, draws = random_rows(300, 64, torch.bfloat16)
    together = drawer()(logits, draws)
    order = torch.randperm(300).tolist()
    shuffled = drawer()(logits[order], [draws[row] for row in order])
    assert torch.equal(shuffled, together[order])
    for row in range(0, 300, 23):
        assert drawer()(logits[row : row + 1], [draws[row]]).tolist() == [int(together[row])]


def test_kernels_get_as_many_rows_as_they_add_up_alike_for() -> None:
    fake, sizes = bound_fake(), []

    def softmax(scores: torch.Tensor, temperatures: torch.Tensor) -> Any:
        sizes.append(len(scores))
        return fake.softmax(scores, temperatures)

    plain = [Draw(SamplingParams(), 0.5)] * 300
    FlashInferDrawer(SimpleNamespace(softmax=softmax))(torch.randn(300, 20), plain)
    assert sizes == [128, 128, 44]


def test_no_rows_are_taken() -> None:
    assert drawer()(torch.empty(0, 9), []).tolist() == []
    assert sample(torch.empty(0, 9), [], drawer()) == []
    assert sample_later(torch.empty(0, 9), [], drawer()).tolist() == []


def test_only_what_is_asked_for_is_computed() -> None:
    def calls(**params: Any) -> dict[str, int]:
        fake = bound_fake()
        FlashInferDrawer(fake)(torch.randn(3, 9), [Draw(SamplingParams(**params), 0.5)] * 3)
        return dict(fake.bound)

    assert calls() == {"softmax": 1}
    assert calls(min_p=0.1) == {"softmax": 1}
    assert calls(top_k=3) == {"top_k_mask_logits": 1, "softmax": 1, "top_p_renorm_probs": 1}
    assert calls(top_p=0.9) == {"softmax": 1, "top_p_renorm_probs": 2}


def rows_of_all_kinds() -> tuple[torch.Tensor, list[SampleRow]]:
    print(f"seed {torch.seed()}")
    greedy = SamplingParams(temperature=0.0)
    penalised = SamplingParams(temperature=0.9, repetition_penalty=1.5, frequency_penalty=0.5)
    biased = SamplingParams(temperature=0.0, logit_bias={3: 9.0, 7: -100.0})
    counts = TokenCounts([1, 2, 3])
    counts.add(5)
    rows = [
        SampleRow(greedy, 1, 0),
        SampleRow(penalised, 2, 4, counts),
        *(SampleRow(way, 3 + index, index) for index, way in enumerate(WAYS)),
        SampleRow(biased, 4, 9),
    ]
    return torch.randn(len(rows), 40) * 3, rows


def test_sampling_with_it_is_sampling_with_torch() -> None:
    logits, rows = rows_of_all_kinds()
    before = logits.clone()
    assert sample(logits, rows, drawer()) == sample(logits, rows)
    assert torch.equal(logits, before)
    for picked in ([0], [1], [12], [1, 12], [0, 12, 5]):
        some = [rows[row] for row in picked]
        assert sample(logits[picked], some, drawer()) == sample(logits[picked], some)


def test_tokens_that_stay_on_the_device_are_those_that_are_looked_at() -> None:
    logits, rows = rows_of_all_kinds()
    plain = [row for row, each in enumerate(rows) if not each.params.changes_logits]
    some = [rows[row] for row in plain]
    assert sample_later(logits[plain], some, drawer()).tolist() == sample(logits[plain], some)
    with pytest.raises(ValueError, match="need the tokens before"):
        sample_later(logits, rows, drawer())


def test_logits_of_16_bits_are_taken() -> None:
    logits, rows = rows_of_all_kinds()
    halved = logits.to(torch.bfloat16)
    assert sample(halved, rows, drawer()) == sample(halved.to(torch.float32), rows)
