"""The fake flashinfer's norms, rotations, activation and samplers compute what the real ones do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.gpu.fake_flashinfer import make_fake
from tests.gpu.fake_inputs import reference

DRAWS = 4000


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Other random inputs in every run; a failing one shows its seed."""
    print(f"seed {torch.seed()}")


def test_a_norm_agrees_with_the_reference() -> None:
    x, weight = torch.randn(5, 96).bfloat16(), torch.randn(96).bfloat16()
    expected = reference("norm", "_rmsnorm_reference")(x, weight)
    torch.testing.assert_close(make_fake().rmsnorm(x, weight), expected)
    out = torch.empty_like(x)
    assert make_fake().rmsnorm(x, weight, out=out) is out
    torch.testing.assert_close(out, expected)


def test_eps_is_added_to_the_mean_square() -> None:
    normed = make_fake().rmsnorm(torch.tensor([[1.0, -1.0]]), torch.ones(2), eps=3.0)
    assert normed.tolist() == [[0.5, -0.5]]


def test_an_added_norm_changes_both_in_place() -> None:
    x, residual, weight = torch.randn(5, 96), torch.randn(5, 96), torch.randn(96)
    expected = reference("norm", "_fused_add_rmsnorm_reference")(x, residual, weight)
    total = x + residual
    assert make_fake().fused_add_rmsnorm(x, residual, weight) is None
    torch.testing.assert_close(x, expected)
    assert torch.equal(residual, total)


def test_the_activation_agrees_with_the_reference() -> None:
    x = torch.randn(5, 32)
    expected = reference("activation", "_silu_and_mul_reference")(x)
    torch.testing.assert_close(make_fake().silu_and_mul(x), expected)
    out = torch.empty(5, 16)
    assert make_fake().silu_and_mul(x, out) is out
    torch.testing.assert_close(out, expected)


def heads() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries and keys as views into one tensor, with a row of values beside them: all of it."""
    both = torch.randn(5, 7, 64)
    return both[:, :4], both[:, 4:6], both


ROTATIONS: list[dict[str, Any]] = [{}, {"interleave": True}, {"rotary_dim": 32}]


@pytest.mark.parametrize("how", ROTATIONS)
def test_rotations_agree_with_the_reference_and_are_in_place(how: dict[str, Any]) -> None:
    q, k, both = heads()
    positions = torch.randint(0, 200, (5,), dtype=torch.int32)
    values = both[:, 6].clone()
    scaling = {"rope_scale": 2.0, "rope_theta": 3e4}
    expected = reference("rope", "_apply_rope_pos_ids_reference")(q, k, positions, **scaling, **how)
    make_fake().apply_rope_pos_ids_inplace(q, k, positions, **scaling, **how)
    torch.testing.assert_close((q, k), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(both[:, 6], values)


@pytest.mark.parametrize("how", ROTATIONS)
def test_llama_31_rotations_agree_with_the_reference(how: dict[str, Any]) -> None:
    q, k, _ = heads()
    positions = torch.randint(0, 200, (5,), dtype=torch.int32)
    # So short a context that frequencies of all three kinds are among the 32.
    scaling = {"old_context_len": 64, "rope_scale": 4.0, "rope_theta": 1e4}
    expected = reference("rope", "_apply_llama31_rope_pos_ids_reference")(
        q, k, positions, **scaling, **how
    )
    make_fake().apply_llama31_rope_pos_ids_inplace(q, k, positions, **scaling, **how)
    torch.testing.assert_close((q, k), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("rotary_dim", [64, 32])
def test_rotations_by_table_agree_with_the_reference(is_neox: bool, rotary_dim: int) -> None:
    query, key = torch.randn(5, 4 * 64), torch.randn(5, 2 * 64)
    angles = torch.rand(200, rotary_dim // 2) * 2 * math.pi
    table = torch.cat((angles.cos(), angles.sin()), dim=1)
    given = torch.randint(0, 200, (5,), dtype=torch.int32), query, key, 64, table, is_neox
    expected = reference("rope", "_apply_rope_with_cos_sin_cache_reference")(*given)
    make_fake().apply_rope_with_cos_sin_cache_inplace(*given)
    torch.testing.assert_close((query, key), expected)


def test_a_turn_of_one_radian_by_hand() -> None:
    # At position 1 the first pair, values 0 and 32, turns by theta to the 0th power, one radian.
    q, k = torch.zeros(1, 1, 64), torch.zeros(1, 1, 64)
    q[..., 0], k[..., 32] = 1, 1
    make_fake().apply_rope_pos_ids_inplace(q, k, torch.ones(1, dtype=torch.int32))
    assert [round(value, 4) for value in q[0, 0, [0, 32]].tolist()] == [0.5403, 0.8415]
    assert [round(value, 4) for value in k[0, 0, [0, 32]].tolist()] == [-0.8415, 0.5403]


@pytest.mark.parametrize("temperature", [None, 0.7, torch.tensor([0.5, 1.0, 2.0])])
def test_softmax_agrees_with_the_reference(temperature: Any) -> None:
    logits = 3 * torch.randn(3, 50)
    expected = reference("sampling", "_softmax_reference")(logits, temperature)
    torch.testing.assert_close(make_fake().softmax(logits, temperature), expected)
    assert make_fake().softmax(logits.bfloat16()).dtype == torch.float32


def frequencies(sampler: str, probs: list[float], *rules: Any, **more: Any) -> torch.Tensor:
    """How often each token comes up in `DRAWS` draws from the same row."""
    rows = torch.tensor([probs])
    first = torch.zeros(DRAWS, dtype=torch.int32)
    drawn = getattr(make_fake(), f"{sampler}_sampling_from_probs")(rows, *rules, first, **more)
    assert (drawn.dtype, drawn.shape) == (torch.int32, (DRAWS,))
    return torch.bincount(drawn.long(), minlength=len(probs)) / DRAWS


def assert_follows(found: torch.Tensor, shares: list[float]) -> None:
    expected = torch.tensor(shares, dtype=torch.float32)
    # Six standard deviations of a share of one half: once in half a billion.
    torch.testing.assert_close(found, expected, rtol=0, atol=3 / math.sqrt(DRAWS))
    assert torch.equal(found > 0, expected > 0)


def test_top_k_draws_from_so_many() -> None:
    assert_follows(frequencies("top_k", [0.2, 0.5, 0.3], 2), [0, 5 / 8, 3 / 8])


def test_top_p_draws_from_the_fewest_that_hold_so_much() -> None:
    assert_follows(frequencies("top_p", [0.2, 0.5, 0.3], 0.4), [0, 1, 0])
    assert_follows(frequencies("top_p", [0.2, 0.5, 0.3], 0.6), [0, 5 / 8, 3 / 8])
    assert_follows(frequencies("top_p", [0.2, 0.5, 0.3], 1.0), [0.2, 0.5, 0.3])


def test_min_p_draws_from_those_near_the_likeliest() -> None:
    assert_follows(frequencies("min_p", [0.2, 0.5, 0.3], 0.5), [0, 5 / 8, 3 / 8])


def test_top_k_and_top_p_apply_one_after_the_other_or_together() -> None:
    # Of 0.4 and 0.3 alone the first is more than half; of all four it is not.
    probs = [0.4, 0.3, 0.2, 0.1]
    assert_follows(frequencies("top_k_top_p", probs, 2, 0.5), [1, 0, 0, 0])
    joint = frequencies("top_k_top_p", probs, 2, 0.5, filter_apply_order="joint")
    assert_follows(joint, [4 / 7, 3 / 7, 0, 0])


def test_filters_agree_with_the_references() -> None:
    fake = make_fake()
    probs = torch.softmax(2 * torch.randn(1, 8), dim=-1)
    for sampler, rule in (("top_k", 3), ("top_p", 0.7)):
        expected = reference("sampling", f"_{sampler}_renorm_probs_reference")(probs, rule)
        found = frequencies(sampler, probs[0].tolist(), rule)
        torch.testing.assert_close(found, expected[0], rtol=0, atol=3 / math.sqrt(DRAWS))
        assert not bool(((found > 0) & (expected[0] == 0)).any())
    likeliest = reference("sampling", "_min_p_sampling_reference")(probs, 1.0)
    assert torch.equal(fake.min_p_sampling_from_probs(probs, 1.0), likeliest)


def test_rules_may_differ_by_row() -> None:
    probs = torch.tensor([[0.1, 0.9]]).expand(2, 2).contiguous()
    by_row = torch.tensor([1, 2], dtype=torch.int32), torch.tensor([1.0, 0.5])
    assert make_fake().top_k_top_p_sampling_from_probs(probs, *by_row).tolist() == [1, 1]


def test_a_seed_and_an_offset_make_draws_repeat() -> None:
    fake = make_fake()
    probs = torch.full((20, 100), 0.01)
    drawn = fake.top_k_sampling_from_probs(probs, 100, seed=1, offset=2)
    as_tensors = {"seed": torch.tensor([1]), "offset": torch.tensor([2])}
    assert torch.equal(fake.top_k_sampling_from_probs(probs, 100, **as_tensors), drawn)
    assert not torch.equal(fake.top_k_sampling_from_probs(probs, 100, seed=1, offset=3), drawn)
    assert not torch.equal(fake.top_k_sampling_from_probs(probs, 100, seed=2, offset=2), drawn)


def test_the_caller_can_ask_which_draws_are_valid() -> None:
    probs = torch.tensor([[0.0, 1.0]])
    drawn, valid = make_fake().top_p_sampling_from_probs(probs, 0.5, return_valid=True)
    assert (drawn.tolist(), valid.tolist()) == ([1], [True])
