"""Every kind of product, against the same in float64."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from radix_engine.cpu.library import Kernels
from radix_engine.cpu.packing import CpuPacking, PackedMatrix
from radix_engine.model.weights import QuantizedBlocks

SHAPES = [(32, 32), (96, 64), (80, 160), (33, 96)]  # outputs, columns
COUNTS = [1, 2, 3, 7, 12, 13, 16, 17, 31, 32, 33, 70]


class Dense:
    """A matrix in memory."""

    def __init__(self, weight: torch.Tensor, blocks: QuantizedBlocks | None = None) -> None:
        self.weight = weight
        self.own = blocks

    @property
    def shape(self) -> tuple[int, int]:
        return self.weight.shape[0], self.weight.shape[1]

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        return self.weight.to(dtype)

    def blocks(self) -> QuantizedBlocks | None:
        return self.own


def random_matrix(outputs: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(outputs, columns, generator=torch.Generator().manual_seed(seed))


def multiply(kernels: Kernels, matrix: PackedMatrix, rows: torch.Tensor) -> torch.Tensor:
    width = -(-matrix.outputs // 32) * 32
    out = torch.full((len(rows), width), float("nan"))
    struct, rows = matrix.struct(), rows.contiguous()
    status = kernels.multiply_rows(ctypes.byref(struct), rows.data_ptr(), len(rows), out.data_ptr())
    assert status == 0
    return out[:, : matrix.outputs]


def packed(kernels: Kernels, weight: torch.Tensor, format: str) -> PackedMatrix:
    return CpuPacking(kernels, format, torch.float32).pack("output", [Dense(weight)], None)


@pytest.mark.parametrize("shape", SHAPES)
def test_float_products_are_right_to_rounding(kernels: Kernels, shape: tuple[int, int]) -> None:
    weight, rows = random_matrix(*shape), random_matrix(70, shape[1], 1)
    expected = rows.double() @ weight.double().T
    result = multiply(kernels, packed(kernels, weight, "fp32"), rows)
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16_products_are_right_for_rounded_inputs(
    kernels: Kernels, shape: tuple[int, int]
) -> None:
    weight, rows = random_matrix(*shape), random_matrix(70, shape[1], 1)
    # Without bf16 instructions the rows stay floats.
    used = rows.bfloat16() if kernels.kind.bf16 else rows
    expected = used.double() @ weight.bfloat16().double().T
    result = multiply(kernels, packed(kernels, weight, "bf16"), rows)
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=5e-5)


@pytest.mark.parametrize(("format", "worst"), [("int8", 0.02), ("int4", 0.12)])
def test_quantized_products_are_near(kernels: Kernels, format: str, worst: float) -> None:
    weight, rows = random_matrix(96, 256), random_matrix(70, 256, 1)
    expected = rows @ weight.T
    result = multiply(kernels, packed(kernels, weight, format), rows)
    assert float((result - expected).norm() / expected.norm()) < worst


@pytest.mark.parametrize("format", ["int8", "int4"])
def test_whole_numbers_are_multiplied_exactly(kernels: Kernels, format: str) -> None:
    """Weights that their groups hold exactly, rows of whole numbers whose largest is 127."""
    generator = torch.Generator().manual_seed(3)
    low, high = (-127, 128) if format == "int8" else (-3, 13)
    weight = torch.randint(low, high, (64, 96), generator=generator).float()
    weight[:, ::32], weight[:, 1::32] = low, high - 1
    rows = torch.randint(-127, 128, (20, 96), generator=generator).float()
    rows[:, ::32] = 127
    assert torch.equal(multiply(kernels, packed(kernels, weight, format), rows), rows @ weight.T)


@pytest.mark.parametrize("format", ["fp32", "bf16", "int8", "int4"])
def test_a_row_is_the_same_bits_among_any_number_of_rows(kernels: Kernels, format: str) -> None:
    matrix = packed(kernels, random_matrix(96, 160), format)
    rows = random_matrix(70, 160, 1)
    alone = torch.cat([multiply(kernels, matrix, row[None]) for row in rows])
    for count in COUNTS:
        for first in (0, 70 - count):
            result = multiply(kernels, matrix, rows[first : first + count])
            assert torch.equal(result, alone[first : first + count])


@pytest.mark.parametrize("format", ["fp32", "bf16", "int8", "int4"])
def test_parts_of_qkv_follow_one_another_and_biases_are_added(
    kernels: Kernels, format: str
) -> None:
    parts = [random_matrix(outputs, 64, outputs) for outputs in (64, 16, 16)]
    rows = random_matrix(5, 64, 9)
    bias = random_matrix(1, 96, 8)[0]
    packing = CpuPacking(kernels, format, torch.float32)
    both = multiply(kernels, packing.pack("qkv", [Dense(part) for part in parts], bias), rows)
    whole = multiply(kernels, packed(kernels, torch.cat(parts), format), rows)
    assert torch.equal(both, whole + bias)


def test_gates_and_ups_alternate_in_sixteens(kernels: Kernels) -> None:
    gate, up = random_matrix(48, 64, 1), random_matrix(48, 64, 2)
    rows, bias = random_matrix(3, 64, 3), random_matrix(1, 96, 4)[0]
    packing = CpuPacking(kernels, "fp32", torch.float32)
    result = multiply(kernels, packing.pack("gate_up", [Dense(gate), Dense(up)], bias), rows)
    pieces = result.view(3, 3, 2, 16)
    torch.testing.assert_close(pieces[:, :, 0].reshape(3, 48), rows @ gate.T + bias[:48])
    torch.testing.assert_close(pieces[:, :, 1].reshape(3, 48), rows @ up.T + bias[48:])


def test_a_files_own_4_bit_blocks_are_taken_as_they_are(kernels: Kernels) -> None:
    """One Q4_1 block: scale 0.5, minimum -2, weights 0 to 15 and 15 to 0 times scale."""
    quants = np.array([*range(16), *range(15, -1, -1)], np.uint8)
    block = np.concatenate(
        [
            np.array([0.5, -2.0], np.float16).view(np.uint8),
            quants[:16] | quants[16:] << 4,
        ]
    )
    data = np.repeat(block[None], 32, axis=0)
    source = Dense(torch.full((32, 32), float("nan")), QuantizedBlocks("Q4_1", 32, 32, data))
    packing = CpuPacking(kernels, "int4", torch.float32)
    matrix = packing.pack("output", [source], None)
    result = multiply(kernels, matrix, torch.eye(32) * 127)
    expected = (torch.from_numpy(quants.astype(np.float32)) * 0.5 - 2) * 127
    assert torch.equal(result, expected[:, None].expand(32, 32))


def test_the_head_of_a_4_bit_model_is_kept_in_8_bits(kernels: Kernels) -> None:
    packing = CpuPacking(kernels, "int4", torch.float32)
    assert packing.pack("head", [Dense(random_matrix(32, 32))], None).format == "int8"
    assert packing.pack("down", [Dense(random_matrix(32, 32))], None).format == "int4"


def test_a_matrix_that_a_file_keeps_partly_in_8_bits_is_not_made_smaller(
    kernels: Kernels,
) -> None:
    """One Q8_0 block a row: scale 0.25, weights -16 to 15 times that; the other part in floats."""
    quants = np.arange(-16, 16, dtype=np.int8)
    block = np.concatenate([np.array([0.25], np.float16).view(np.uint8), quants.view(np.uint8)])
    data = np.repeat(block[None], 32, axis=0)
    source = Dense(torch.full((32, 32), float("nan")), QuantizedBlocks("Q8_0", 32, 32, data))
    packing = CpuPacking(kernels, "int4", torch.float32)
    matrix = packing.pack("gate_up", [source, Dense(torch.zeros(32, 32))], None)
    assert matrix.format == "int8"
    result = multiply(kernels, matrix, torch.eye(32) * 127).view(32, 2, 2, 16)
    expected = torch.from_numpy(quants.astype(np.float32)) * 0.25 * 127
    assert torch.equal(result[:, :, 0], expected[:, None, None].expand(32, 2, 16))
    assert torch.equal(result[:, :, 1], torch.zeros(32, 2, 16))


@pytest.mark.parametrize(
    ("which", "function", "worst"),
    [
        (0, np.exp2, 3e-7),
        (1, lambda x: x / (1 + np.exp(-x)), 1e-6),
        (2, np.tanh, 4e-7),
    ],
)
def test_functions_are_right_to_float_rounding(
    kernels: Kernels, which: int, function: np.ufunc, worst: float
) -> None:
    x = np.linspace(-30, 30, 4096, dtype=np.float32)
    out = np.empty_like(x)
    for i in range(0, len(x), 16):
        kernels.apply_function(which, x[i : i + 16].ctypes.data, out[i : i + 16].ctypes.data)
    expected = function(x.astype(np.float64))
    scale = np.abs(expected) if which == 0 else np.maximum(np.abs(expected), 1)
    assert float(np.max(np.abs(out - expected) / scale)) < worst


def test_halves_are_rounded_to_nearest_even(kernels: Kernels) -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 100
    x[:4] = torch.tensor([1.00390625, 1.01171875, float("inf"), float("nan")])
    out = torch.empty_like(x)
    for i in range(0, len(x), 16):
        kernels.apply_function(3, x[i:].data_ptr(), out[i:].data_ptr())
    assert torch.equal(out.nan_to_num(7), x.bfloat16().float().nan_to_num(7))
