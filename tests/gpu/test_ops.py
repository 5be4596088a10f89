"""The operations between matrix products: values by hand, and FlashInfer's against torch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from radix_engine.gpu.ops import FlashInferOps, Ops, TorchOps, cos_sin_table
from radix_engine.model.config import ModelConfig, parse_config
from radix_engine.model.rope import inverse_frequencies, rotation
from tests.gpu.binding import bound_fake

CPU = torch.device("cpu")
# Two roundings to bfloat16 (8 bits) of numbers below 8, and float32's own noise.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.04}

SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
}


def shape(head_dim: int, **overrides: Any) -> ModelConfig:
    return parse_config(
        {
            "model_type": "llama",
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": head_dim,
            "intermediate_size": 96,
            "vocab_size": 32,
            "max_position_embeddings": 512,
        }
        | overrides
    )


def random(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def both(check: Callable[[Ops], None]) -> None:
    check(TorchOps())
    check(FlashInferOps(bound_fake()))


def test_a_norm_divides_by_the_root_of_the_mean_square() -> None:
    # 3 and 4: the mean of 9 and 16 is 12.5, its root 3.5355.
    x, weight = torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0])
    normed = TorchOps().rms_norm(x, weight, 0.0)
    torch.testing.assert_close(normed, torch.tensor([[0.848528, 2.262742]]))
    assert x.tolist() == [[3.0, 4.0]]


def test_eps_is_added_to_the_mean_square() -> None:
    # The mean square is 1; with 3 added the root is 2.
    normed = TorchOps().rms_norm(torch.tensor([[1.0, -1.0]]), torch.ones(2), 3.0)
    assert normed.tolist() == [[0.5, -0.5]]


def test_an_added_norm_changes_the_residual_and_norms_the_sum() -> None:
    residual = torch.tensor([[1.0, 2.0]])
    normed = TorchOps().add_rms_norm(
        torch.tensor([[2.0, 2.0]]), residual, torch.tensor([1.0, 2.0]), 0.0
    )
    assert residual.tolist() == [[3.0, 4.0]]
    torch.testing.assert_close(normed, torch.tensor([[0.848528, 2.262742]]))


def test_the_activation_takes_silu_of_the_first_half_times_the_second() -> None:
    # The sigmoid of ln 3 is 3/4.
    product = TorchOps().silu_and_mul(torch.tensor([[math.log(3), 0.0, 2.0, 5.0]]))
    torch.testing.assert_close(product, torch.tensor([[1.5 * math.log(3), 0.0]]))


def test_a_rotation_turns_a_pair_by_its_position_in_radians() -> None:
    # Two dimensions have one frequency, 1.
    rotate = TorchOps().rope(shape(2), CPU)
    queries = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 2.0]]])
    keys = torch.ones(3, 1, 2)
    rotate(queries, keys, torch.tensor([0, 1, 3], dtype=torch.int32))
    expected = [
        [[1.0, 0.0]],
        [[math.cos(1), math.sin(1)]],
        [[-2 * math.sin(3), 2 * math.cos(3)]],
    ]
    torch.testing.assert_close(queries, torch.tensor(expected))
    turned = [math.cos(1) - math.sin(1), math.cos(1) + math.sin(1)]
    torch.testing.assert_close(keys[1, 0], torch.tensor(turned))


def test_a_rotation_leaves_the_values_beside_the_keys_alone() -> None:
    def check(ops: Ops) -> None:
        heads = random(5, 8, 64)
        before = heads.clone()
        rotate = ops.rope(shape(64), CPU)
        rotate(heads[:, :4], heads[:, 4:6], torch.arange(2, 7, dtype=torch.int32))
        assert torch.equal(heads[:, 6:], before[:, 6:])
        assert not torch.isclose(heads[:, :6], before[:, :6]).all(dim=-1).any()

    both(check)


def test_low_frequencies_are_stretched_in_the_table_as_in_the_model() -> None:
    for overrides in SCALINGS.values():
        config = shape(64, **overrides)
        table = cos_sin_table(config, CPU)
        assert table.dtype == torch.float32
        assert table.shape == (512, 64)
        cosines, sines = rotation(torch.arange(512), inverse_frequencies(config))
        assert torch.equal(table[:, :32], cosines[:, 0, :32])
        assert torch.equal(table[:, 32:], sines[:, 0, 32:])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_fused_norms_equal_those_in_torch(dtype: torch.dtype) -> None:
    x, residual, weight = (
        random(*size, seed=seed).to(dtype) for seed, size in enumerate([(7, 96), (7, 96), (96,)])
    )
    fused, plain = FlashInferOps(bound_fake()), TorchOps()
    assert_near(fused.rms_norm(x, weight, 1e-5), plain.rms_norm(x, weight, 1e-5))
    sums = residual.clone(), residual.clone()
    results = (
        fused.add_rms_norm(x.clone(), sums[0], weight, 1e-5),
        plain.add_rms_norm(x.clone(), sums[1], weight, 1e-5),
    )
    assert_near(*results)
    assert_near(*sums)
    assert not torch.equal(sums[0], residual)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_fused_norms_per_head_equal_those_in_torch(dtype: torch.dtype) -> None:
    heads, weight = random(7, 8, 64).to(dtype), random(64, seed=1).to(dtype)
    queries = heads[:, :4]
    normed = FlashInferOps(bound_fake()).rms_norm(queries, weight, 1e-6)
    assert normed.shape == (7, 4, 64)
    assert_near(normed, TorchOps().rms_norm(queries, weight, 1e-6))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_rotations_by_the_table_equal_those_in_torch(
    dtype: torch.dtype, scaling: str, head_dim: int
) -> None:
    config = shape(head_dim, **SCALINGS[scaling])
    positions = torch.tensor([0, 1, 63, 64, 511, 7], dtype=torch.int32)
    heads = random(6, 8, head_dim, seed=3).to(dtype)
    rotated = []
    for ops in (FlashInferOps(bound_fake()), TorchOps()):
        mine = heads.clone()
        ops.rope(config, CPU)(mine[:, :4], mine[:, 4:6], positions)
        rotated.append(mine)
    assert_near(*rotated)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_fused_activations_equal_those_in_torch(dtype: torch.dtype) -> None:
    gate_up = random(5, 192, seed=4).to(dtype)
    assert_near(FlashInferOps(bound_fake()).silu_and_mul(gate_up), TorchOps().silu_and_mul(gate_up))


# Refused before anybody is called.
NOBODY = None


def half(*size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (half(2, 8), torch.ones(8)),
        (half(2, 8), half(4)),
        (half(2, 8), half(16)[::2]),
        (half(8, 2).T, half(8)),
        (half(8), half(8)),
    ],
    ids=["float32 weight", "short weight", "strided weight", "strided rows", "one row"],
)
def test_a_norm_that_the_kernel_would_misread_is_refused(
    x: torch.Tensor, weight: torch.Tensor
) -> None:
    with pytest.raises(ValueError, match="norm"):
        FlashInferOps(NOBODY).rms_norm(x, weight, 1e-6)


@pytest.mark.parametrize(
    "residual",
    [half(3, 8), torch.zeros(2, 8), half(8, 2).T],
    ids=["other rows", "other dtype", "strided"],
)
def test_a_sum_that_the_kernel_would_misread_is_refused(residual: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"sum|residual"):
        FlashInferOps(NOBODY).add_rms_norm(half(2, 8), residual, half(8), 1e-6)


def test_a_rotation_that_the_kernel_would_misread_is_refused() -> None:
    ops = FlashInferOps(NOBODY)
    rotate = ops.rope(shape(64), CPU)
    positions = torch.arange(3, dtype=torch.int32)
    with pytest.raises(ValueError, match="positions must be contiguous int32"):
        rotate(half(3, 4, 64), half(3, 2, 64), positions.long())
    with pytest.raises(ValueError, match="positions must be contiguous int32"):
        rotate(half(3, 4, 64), half(3, 2, 64), torch.arange(6, dtype=torch.int32)[::2])
    with pytest.raises(ValueError, match="do not go with"):
        rotate(half(3, 4, 64), torch.zeros(3, 2, 64), positions)
    with pytest.raises(ValueError, match="keys of 3 tokens in heads of 64"):
        rotate(half(3, 4, 64), half(3, 2, 32), positions)
    with pytest.raises(ValueError, match="queries of 3 tokens"):
        rotate(half(2, 4, 64), half(3, 2, 64), positions)
    with pytest.raises(ValueError, match="last dimension"):
        rotate(half(3, 64, 4).transpose(1, 2), half(3, 2, 64), positions)
    with pytest.raises(ValueError, match="side by side"):
        rotate(half(4, 3, 64).transpose(0, 1), half(3, 2, 64), positions)
    with pytest.raises(ValueError, match="64, 128, 256, 512 dimensions, not of 32"):
        ops.rope(shape(32), CPU)


def test_an_activation_that_the_kernel_would_misread_is_refused() -> None:
    ops = FlashInferOps(NOBODY)
    with pytest.raises(ValueError, match="multiple of 16 bytes"):
        ops.silu_and_mul(half(2, 24))  # halves of 24 bytes
    with pytest.raises(ValueError, match="contiguous"):
        ops.silu_and_mul(half(16, 2).T)


def assert_near(left: torch.Tensor, right: torch.Tensor) -> None:
    assert left.dtype == right.dtype
    torch.testing.assert_close(left, right, rtol=0, atol=TOLERANCE[left.dtype])
