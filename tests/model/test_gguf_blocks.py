"""Dequantizing GGUF blocks: the values by hand, and the bits that the gguf package computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from radix_engine.model.gguf_blocks import BLOCK_KINDS, dequantize

# Where in a block its float16 scales are: random bytes there would be NaN now and then.
SCALES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def random_blocks(kind: str, rows: int, blocks: int) -> torch.Tensor:
    """Blocks with random quants and scales of all sizes, subnormal ones too."""
    rng = np.random.default_rng(len(kind) + rows)
    data = rng.integers(0, 256, (rows, blocks, BLOCK_KINDS[kind].bytes), dtype=np.uint8)
    for at in SCALES[kind]:
        exponents = rng.integers(-26, 8, (rows, blocks, 1))
        scales = np.ldexp(rng.uniform(-1, 1, (rows, blocks, 1)), exponents).astype(np.float16)
        data[:, :, at : at + 2] = scales.view(np.uint8)
    return torch.from_numpy(data.reshape(rows, -1))


def float16(*values: float) -> list[int]:
    return list(np.array(values, np.float16).tobytes())


def test_q4_1_is_scale_times_quant_plus_minimum_low_halves_first() -> None:
    quants_ = [0x10 * (15 - i) + i for i in range(16)]  # i in the low half, 15 - i in the high one
    block = torch.tensor([float16(0.5, -3.0) + quants_], dtype=torch.uint8)
    expected = [0.5 * i - 3.0 for i in range(16)] + [0.5 * (15 - i) - 3.0 for i in range(16)]
    assert dequantize("Q4_1", block, torch.float32).tolist() == [expected]


def test_q4_0_is_scale_times_quant_less_eight() -> None:
    block = torch.tensor([float16(-0.25) + [0xF0] * 16], dtype=torch.uint8)
    assert dequantize("Q4_0", block, torch.float32).tolist() == [[2.0] * 16 + [-1.75] * 16]


def test_q8_0_is_scale_times_a_signed_byte() -> None:
    block = torch.tensor([float16(2.0) + [0, 1, 127, 128, 255] + [3] * 27], dtype=torch.uint8)
    expected = [0.0, 2.0, 254.0, -256.0, -2.0] + [6.0] * 27
    assert dequantize("Q8_0", block, torch.float32).tolist() == [expected]


@pytest.mark.parametrize("kind", BLOCK_KINDS)
def test_every_bit_is_that_of_the_gguf_package(kind: str) -> None:
    number = GGMLQuantizationType[kind]
    assert GGML_QUANT_SIZES[number] == (BLOCK_KINDS[kind].weights, BLOCK_KINDS[kind].bytes)
    data = random_blocks(kind, rows=37, blocks=3 if BLOCK_KINDS[kind].weights == 256 else 67)
    expected = torch.from_numpy(quants.dequantize(data.numpy(), number))
    assert expected.isfinite().all()
    values = dequantize(kind, data, torch.float32)
    assert values.shape == expected.shape
    assert torch.equal(values.view(torch.int32), expected.view(torch.int32))
    assert torch.equal(dequantize(kind, data, torch.bfloat16), expected.to(torch.bfloat16))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q4_K"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_long_matrix_is_dequantized_as_its_rows_are(kind: str, dtype: torch.dtype) -> None:
    blocks = 4096 // BLOCK_KINDS[kind].weights
    data = random_blocks(kind, rows=20, blocks=blocks)  # 81,920 weights: several parts at a time
    whole = dequantize(kind, data, dtype)
    rows = [dequantize(kind, data[row : row + 1], dtype) for row in range(20)]
    assert torch.equal(whole, torch.cat(rows))
