"""Weights laid out for the kernels: see kernels/matrix.h."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from radix_engine.cpu.arena import Arena
from radix_engine.cpu.library import FORMATS, Kernels, MatrixStruct
from radix_engine.model.weights import MatrixSource, QuantizedBlocks, Role

PANEL = 32
_HALF = 16

_SOURCES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_BLOCKS = {"Q4_0": 0, "Q4_1": 1, "Q8_0": 2}
_PANELS_A_TASK = 8


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix [outputs, columns] in panels; ``bias`` float32 [outputs, padded to 32] or None."""

    format: str
    outputs: int
    columns: int
    data: torch.Tensor
    bias: torch.Tensor | None

    def struct(self) -> MatrixStruct:
        """The kernels' view; the tensors must outlive it."""
        return MatrixStruct(
            FORMATS[self.format],
            self.outputs,
            self.columns,
            0,
            self.data.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
        )


class CpuPacking:
    """Matrices in ``format`` for the kernels; the embedding in ``dtype``.

    ``format`` is one of `FORMATS`. With int4 the head is kept in int8, which costs little and
    decides most, and so is a matrix of which a GGUF file keeps a part in 8 bits (Q8_0); a file's
    own blocks of 4 or 8 bits are taken as they are.
    """

    def __init__(self, kernels: Kernels, format: str, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._kernels = kernels
        self._format = format
        self._arena = Arena()
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def pack(
        self, role: Role, parts: Sequence[MatrixSource], bias: torch.Tensor | None
    ) -> PackedMatrix:
        """See `Packing`."""
        outputs = sum(part.shape[0] for part in parts)
        columns = parts[0].shape[1]
        format = self._format_of(role, parts)
        panels = -(-outputs // PANEL)
        data = self._arena.take(self._kernels.matrix_bytes(FORMATS[format], outputs, columns))
        for part, halves in zip(parts, _places(role, parts, panels), strict=True):
            self._fill(data, format, part, halves)
        padded = None
        if bias is not None:
            padded = torch.zeros(panels * PANEL)
            padded[: len(bias)] = bias
            if role == "gate_up":
                padded = padded[torch.from_numpy(_gate_up_order(len(bias)))].contiguous()
        return PackedMatrix(format, outputs, columns, data, padded)

    def _format_of(self, role: Role, parts: Sequence[MatrixSource]) -> str:
        if self._format != "int4":
            return self._format
        in_8_bits = any((blocks := part.blocks()) and blocks.kind == "Q8_0" for part in parts)
        return "int8" if role == "head" or in_8_bits else "int4"

    def _fill(
        self, data: torch.Tensor, format: str, part: MatrixSource, halves: npt.NDArray[np.int32]
    ) -> None:
        blocks = part.blocks() if format in ("int8", "int4") else None
        if blocks is not None and (blocks.kind == "Q8_0") == (format == "int8"):
            self._pack_blocks(data, format, blocks, halves)
            return
        dense = part.dense(_source_dtype(part, format)).contiguous()
        rows, columns = dense.shape

        def task(first: int, end: int) -> None:
            self._kernels.pack_matrix(
                data.data_ptr(), FORMATS[format], dense.data_ptr(), _SOURCES[dense.dtype],
                rows, columns, halves.ctypes.data, first, end,
            )  # fmt: skip

        self._in_parallel(task, len(halves) // 2)

    def _pack_blocks(
        self,
        data: torch.Tensor,
        format: str,
        blocks: QuantizedBlocks,
        halves: npt.NDArray[np.int32],
    ) -> None:
        source = np.ascontiguousarray(blocks.data)

        def task(first: int, end: int) -> None:
            self._kernels.pack_blocks(
                data.data_ptr(), FORMATS[format], source.ctypes.data, _BLOCKS[blocks.kind],
                blocks.rows, blocks.columns, halves.ctypes.data, first, end,
            )  # fmt: skip

        self._in_parallel(task, len(halves) // 2)

    def _in_parallel(self, task: Callable[[int, int], None], panels: int) -> None:
        firsts = range(0, panels, _PANELS_A_TASK)
        ends = [min(first + _PANELS_A_TASK, panels) for first in firsts]
        list(self._pool.map(task, firsts, ends))


def _source_dtype(part: MatrixSource, format: str) -> torch.dtype:
    return torch.bfloat16 if format == "bf16" else torch.float32


def _places(role: Role, parts: Sequence[MatrixSource], panels: int) -> list[npt.NDArray[np.int32]]:
    """For each part: which of its rows each half panel (16 outputs) begins with; -1: none of it."""
    if role == "gate_up":
        starts = np.arange(panels, dtype=np.int32) * _HALF
        gates = np.full(2 * panels, -1, np.int32)
        ups = gates.copy()
        gates[0::2] = starts
        ups[1::2] = starts
        return [gates, ups]
    places = []
    first = 0
    for part in parts:
        halves = np.full(2 * panels, -1, np.int32)
        count = -(-part.shape[0] // _HALF)
        halves[first : first + count] = np.arange(count, dtype=np.int32) * _HALF
        places.append(halves)
        first += count
    return places


def _gate_up_order(outputs: int) -> npt.NDArray[np.int64]:
    """Where the outputs of a gate_up matrix come from, panel by panel."""
    halves = np.arange(outputs, dtype=np.int64).reshape(2, -1, _HALF)
    return halves.transpose(1, 0, 2).reshape(-1)
