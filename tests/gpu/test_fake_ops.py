"""The fake flashinfer's norms, rotations and activation compute what the real ones do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.gpu.fake_flashinfer import make_fake
from tests.gpu.fake_inputs import reference


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
