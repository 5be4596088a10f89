"""Dequantizing the blocks of a GGUF file.

A row of a quantized matrix is cut into blocks of 32 or 256 weights, each with its scales. The kinds
that models are most often loaded from are unpacked here, two to three times as fast as the ``gguf``
package does it; that package unpacks the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

_CHUNK = 31 << 10
"""Weights dequantized at a time. Their values stay in a core's cache, and torch starts no threads
for so few: waiting for those at each small operation is very slow when a core is busy."""

_LOW_HALVES = 0x0F0F0F0F0F0F0F0F


@dataclass(frozen=True, slots=True)
class BlockKind:
    """One kind of block: how many weights it holds in how many bytes, and how to unpack them.

    ``unpack`` takes uint8 [blocks, bytes] and fills float32 [blocks, weights].
    """

    weights: int
    bytes: int
    unpack: Callable[[torch.Tensor, torch.Tensor], None]


def dequantize(kind: str, data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The matrix [rows, columns] in ``data``: uint8 [rows, bytes a row], blocks of ``kind``.

    Computed in float32 and rounded to ``dtype``. Costs about 3 ns a weight (Q8_0 half of that, the
    kinds that ``gguf`` unpacks two to three times as much) and no memory beside the result.
    """
    block = BLOCK_KINDS[kind]
    packed = data.reshape(-1, block.bytes)
    columns = data.shape[1] // block.bytes * block.weights
    result = torch.empty(data.shape[0], columns, dtype=dtype)
    unpacked = result.view(-1, block.weights)
    count = _CHUNK // block.weights
    scratch = torch.empty(count, block.weights)
    for start in range(0, len(packed), count):
        part, target = packed[start : start + count], unpacked[start : start + count]
        if dtype == torch.float32:
            block.unpack(part, target)
        else:
            values = scratch[: len(part)]
            block.unpack(part, values)
            target.copy_(values)
    return result


# A float16 scale times a quant of at most 8 bits is exact in float32, and what is added to it is
# rounded once. So the values are the same bits in whatever order they are computed.


def _q4_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    """Scale, 16 bytes of quants from 0 to 15 for -8 to 7."""
    _nibbles(blocks[:, 2:], out)
    out.sub_(8).mul_(_halves(blocks[:, :2]))


def _q4_1(blocks: torch.Tensor, out: torch.Tensor) -> None:
    """Scale, minimum, 16 bytes of quants from 0 to 15."""
    _nibbles(blocks[:, 4:], out)
    both = _halves(blocks[:, :4])
    out.mul_(both[:, :1]).add_(both[:, 1:])


def _q8_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    """Scale, 32 signed bytes."""
    torch.mul(blocks[:, 2:].view(torch.int8), _halves(blocks[:, :2]), out=out)


def _halves(parts: torch.Tensor) -> torch.Tensor:
    """Bytes [blocks, 2 * n] as the float16 numbers that they are, float32 [blocks, n]."""
    return parts.contiguous().view(torch.float16).to(torch.float32)


def _nibbles(packed: torch.Tensor, out: torch.Tensor) -> None:
    """Bytes [blocks, 16] to 32 numbers each: the low halves of all, then the high halves."""
    aligned = packed.clone(memory_format=torch.contiguous_format)
    eights = aligned.view(torch.int64)  # eight bytes at a time
    both = torch.cat((eights & _LOW_HALVES, (eights >> 4) & _LOW_HALVES), dim=1)
    out.copy_(both.view(torch.uint8))


def _by_gguf(kind: str) -> Callable[[torch.Tensor, torch.Tensor], None]:
    def unpack(blocks: torch.Tensor, out: torch.Tensor) -> None:
        from gguf import GGMLQuantizationType, quants  # takes a while and is seldom needed

        row = blocks.numpy().reshape(1, -1)
        values = quants.dequantize(row, GGMLQuantizationType[kind])
        out.copy_(torch.from_numpy(values).view_as(out))

    return unpack


BLOCK_KINDS = {
    "Q4_0": BlockKind(32, 18, _q4_0),
    "Q4_1": BlockKind(32, 20, _q4_1),
    "Q5_0": BlockKind(32, 22, _by_gguf("Q5_0")),
    "Q5_1": BlockKind(32, 24, _by_gguf("Q5_1")),
    "Q8_0": BlockKind(32, 34, _q8_0),
    "Q2_K": BlockKind(256, 84, _by_gguf("Q2_K")),
    "Q3_K": BlockKind(256, 110, _by_gguf("Q3_K")),
    "Q4_K": BlockKind(256, 144, _by_gguf("Q4_K")),
    "Q5_K": BlockKind(256, 176, _by_gguf("Q5_K")),
    "Q6_K": BlockKind(256, 210, _by_gguf("Q6_K")),
}
"""The kinds of quantized blocks that can be read."""
