"""A part of a matrix where it lies: some of its rows, or some of its columns.

Only what the part needs is read from the file. Columns of a quantized matrix are read in whole
blocks of weights along a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from radix_engine.model.gguf_blocks import BLOCK_KINDS
from radix_engine.model.gguf_files import GGUFMatrix
from radix_engine.model.tensor_files import TensorMatrix
from radix_engine.model.weights import MatrixSource, QuantizedBlocks, TiedMatrix


def cut_rows(source: MatrixSource, rows: range) -> MatrixSource:
    """Some rows of a matrix; those past its end are zeros.

    Of Q and K in a GGUF file whole heads only. Part of a `TiedMatrix` without padding is one, too,
    so that a packing may keep it. Cost: none before the part is read.
    """
    there = range(rows.start, max(rows.start, min(rows.stop, source.shape[0])))
    part = _rows(source, there)
    return part if len(there) == len(rows) else _Padded(part, len(rows))


def cut_columns(source: MatrixSource, columns: range) -> MatrixSource:
    """Some columns of a matrix. Cost: none before the part is read, save the bytes of a GGUF
    file's part."""
    if isinstance(source, TensorMatrix):
        return _Contiguous(TensorMatrix(source.tensor[:, columns.start : columns.stop]))
    if isinstance(source, GGUFMatrix):
        return _gguf_columns(source, columns)
    raise TypeError(f"columns of a {type(source).__name__} cannot be read")


def _rows(source: MatrixSource, rows: range) -> MatrixSource:
    if isinstance(source, TiedMatrix):
        embedding = source.embedding[rows.start : rows.stop]
        return TiedMatrix(embedding, _rows(source.source, rows))
    if isinstance(source, TensorMatrix):
        return TensorMatrix(source.tensor[rows.start : rows.stop])
    if isinstance(source, GGUFMatrix):
        heads = source.heads
        if heads is not None:
            heads = heads * len(rows) // source.shape[0]
        return replace(source, data=source.data[rows.start : rows.stop], heads=heads)
    raise TypeError(f"rows of a {type(source).__name__} cannot be read")


def _gguf_columns(source: GGUFMatrix, columns: range) -> MatrixSource:
    block = BLOCK_KINDS.get(source.kind)
    weights = 1 if block is None else block.weights
    row_bytes = source.data.shape[1]
    block_bytes = row_bytes * weights // source.columns
    first, end = columns.start // weights, -(-columns.stop // weights)
    data = np.ascontiguousarray(source.data[:, first * block_bytes : end * block_bytes])
    whole = replace(source, columns=(end - first) * weights, data=data)
    start = columns.start - first * weights
    return _Contiguous(whole, range(start, start + len(columns)))


@dataclass(frozen=True, slots=True)
class _Contiguous:
    """Columns of a small matrix, as one piece of memory. ``columns`` None: all of them."""

    source: MatrixSource
    columns: range | None = None

    @property
    def shape(self) -> tuple[int, int]:
        rows, all_columns = self.source.shape
        return rows, all_columns if self.columns is None else len(self.columns)

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        tensor = self.source.dense(dtype)
        if self.columns is not None:
            tensor = tensor[:, self.columns.start : self.columns.stop]
        return tensor.contiguous()

    def blocks(self) -> QuantizedBlocks | None:
        return None


@dataclass(frozen=True, slots=True)
class _Padded:
    """A matrix with rows of zeros at its end, ``rows`` in all."""

    source: MatrixSource
    rows: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.source.shape[1]

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        there = self.source.dense(dtype)
        padded = torch.zeros(self.shape, dtype=dtype, device=there.device)
        padded[: len(there)] = there
        return padded

    def blocks(self) -> QuantizedBlocks | None:
        return None
