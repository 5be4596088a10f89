"""A part of a matrix is what the whole one has there, whatever it is stored as."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from radix_engine.model.gguf_files import GGUFMatrix, unpaired
from radix_engine.model.tensor_files import TensorMatrix
from radix_engine.model.weights import TiedMatrix
from radix_engine.parallel.cut import cut_columns, cut_rows


def counting(rows: int, columns: int) -> torch.Tensor:
    return torch.arange(rows * columns, dtype=torch.float32).view(rows, columns)


def quantized(kind: str, rows: int = 4, columns: int = 512) -> GGUFMatrix:
    values = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    data = quants.quantize(values, GGMLQuantizationType[kind])
    return GGUFMatrix(kind, columns, data.view(np.uint8))


def test_rows_of_a_tensor() -> None:
    part = cut_rows(TensorMatrix(counting(6, 2)), range(1, 3))
    assert part.shape == (2, 2)
    assert part.dense(torch.float32).tolist() == [[2, 3], [4, 5]]


def test_rows_past_the_end_are_zeros() -> None:
    part = cut_rows(TensorMatrix(counting(3, 2)), range(2, 5))
    assert part.shape == (3, 2)
    assert part.dense(torch.float32).tolist() == [[4, 5], [0, 0], [0, 0]]


def test_a_part_that_lies_past_the_end_is_all_zeros() -> None:
    part = cut_rows(TensorMatrix(counting(3, 2)), range(4, 6))
    assert part.shape == (2, 2)
    assert part.dense(torch.float32).tolist() == [[0, 0], [0, 0]]


def test_columns_of_a_tensor_are_one_piece_of_memory() -> None:
    part = cut_columns(TensorMatrix(counting(2, 6)), range(2, 5))
    assert part.shape == (2, 3)
    dense = part.dense(torch.float32)
    assert dense.tolist() == [[2, 3, 4], [8, 9, 10]]
    assert dense.is_contiguous()
    assert dense.untyped_storage().nbytes() == 6 * 4


def test_rows_of_a_tied_matrix_are_rows_of_the_embedding_itself() -> None:
    embedding = counting(6, 2)
    tied = TiedMatrix(embedding, TensorMatrix(counting(6, 2).to(torch.float64)))
    part = cut_rows(tied, range(2, 4))
    assert isinstance(part, TiedMatrix)
    assert part.dense(torch.float32).data_ptr() == embedding[2].data_ptr()
    assert part.dense(torch.float64).tolist() == [[4, 5], [6, 7]]
    assert part.shape == (2, 2)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1", "F16", "F32"])
@pytest.mark.parametrize("columns", [range(0, 256), range(256, 512), range(48, 112)])
def test_columns_of_a_gguf_file(kind: str, columns: range) -> None:
    whole = quantized(kind)
    part = cut_columns(whole, columns)
    assert part.shape == (4, len(columns))
    dense = part.dense(torch.float32)
    assert torch.equal(dense, whole.dense(torch.float32)[:, columns.start : columns.stop])
    assert dense.is_contiguous()


def test_rows_of_a_gguf_file() -> None:
    whole = quantized("Q8_0")
    part = cut_rows(whole, range(1, 3))
    assert torch.equal(part.dense(torch.float32), whole.dense(torch.float32)[1:3])
    blocks = part.blocks()
    assert blocks is not None
    assert blocks.rows == 2


def test_heads_that_a_gguf_file_interleaves_are_put_in_order() -> None:
    plain = quantized("F32", rows=12, columns=32)
    whole = GGUFMatrix("F32", 32, plain.data, heads=3)  # of 4 rows each
    part = cut_rows(whole, range(4, 12))
    expected = unpaired(plain.data, 3)[4:12]
    assert np.array_equal(part.dense(torch.float32).numpy().view(np.uint8), expected)


def test_columns_are_read_from_the_file_in_whole_blocks_and_no_more(tmp_path: Path) -> None:
    whole = quantized("Q8_0")
    file = tmp_path / "matrix"
    whole.data.tofile(file)
    mapped = np.memmap(file, np.uint8, mode="c", shape=whole.data.shape)
    mapped[:, : 34 * 1] = 255  # a block of 32 weights is 34 bytes; its scale is now not a number
    mapped[:, 34 * 4 :] = 255
    part = cut_columns(GGUFMatrix("Q8_0", 512, mapped), range(48, 112))
    assert torch.equal(part.dense(torch.float32), whole.dense(torch.float32)[:, 48:112])
    part = cut_columns(GGUFMatrix("Q8_0", 512, mapped), range(31, 33))
    assert part.dense(torch.float32)[:, 0].isnan().all()


class Unknown:
    shape = (4, 4)

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(4, 4, dtype=dtype)

    def blocks(self) -> None:
        return None


def test_a_matrix_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="rows of a Unknown cannot be read"):
        cut_rows(Unknown(), range(2))
    with pytest.raises(TypeError, match="columns of a Unknown cannot be read"):
        cut_columns(Unknown(), range(2))
