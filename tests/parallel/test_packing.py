"""A rank's products compute its outputs, or its part of every output's sum, and hold no more."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from radix_engine.model.errors import ModelError
from radix_engine.model.linear import Linear, TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.tensor_files import TensorMatrix
from radix_engine.model.weights import LoadedModel, TiedMatrix
from radix_engine.parallel.linear import GatheredLinear, SummedLinear
from radix_engine.parallel.packing import ShardPacking, load_part
from radix_engine.parallel.shard import shard_of
from tests.parallel.helpers import llama_config, tiny_model

CPU = torch.device("cpu")
# Double precision is never packed by oneDNN, so that weights can be looked at.
DOUBLE = torch.float64


def packing(rank: int, size: int) -> ShardPacking:
    config = llama_config()
    return ShardPacking(config, shard_of(config, rank, size), TorchPacking(DOUBLE))


def matrix(rows: int, columns: int, seed: int) -> TensorMatrix:
    generator = torch.Generator().manual_seed(seed)
    return TensorMatrix(torch.randn(rows, columns, generator=generator, dtype=DOUBLE))


def load_parts(folder: ModelFolder, size: int) -> list[LoadedModel[Linear]]:
    return [load_part(folder, DOUBLE, CPU, rank, size) for rank in range(size)]


def test_qkv_of_a_rank_are_its_heads_of_each() -> None:
    parts = [matrix(64, 64, 0), matrix(32, 64, 1), matrix(32, 64, 2)]
    bias = torch.arange(128, dtype=torch.float32)
    mine = packing(1, 4).pack("qkv", parts, bias)
    q, k, v = (part.tensor for part in parts)
    # Query heads 2 and 3, KV head 1; 8 rows a head.
    assert torch.equal(mine.weight, torch.cat((q[16:32], k[8:16], v[8:16])))
    assert mine.bias is not None
    assert mine.bias.tolist() == [*range(16, 32), *range(72, 80), *range(104, 112)]


def test_gate_and_up_of_a_rank_are_the_same_columns_of_the_mlp() -> None:
    parts = [matrix(96, 64, 0), matrix(96, 64, 1)]
    bias = torch.arange(192, dtype=torch.float32)
    mine = packing(3, 4).pack("gate_up", parts, bias)
    assert torch.equal(mine.weight, torch.cat((parts[0].tensor[72:], parts[1].tensor[72:])))
    assert mine.bias is not None
    assert mine.bias.tolist() == [*range(72, 96), *range(168, 192)]


@pytest.mark.parametrize(("role", "columns"), [("output", 64), ("down", 96)])
def test_the_ranks_parts_of_a_sum_add_up_with_the_bias_once(role: str, columns: int) -> None:
    whole = matrix(10, columns, 0)
    bias = torch.arange(10, dtype=torch.float32)
    x = matrix(3, columns, 1).tensor
    total = torch.zeros(3, 10, dtype=DOUBLE)
    for rank in range(4):
        mine = packing(rank, 4).pack(role, [whole], bias)  # type: ignore[arg-type]
        assert isinstance(mine, SummedLinear)
        width = columns // 4
        total += Linear.__call__(mine, x[:, rank * width : (rank + 1) * width])
        assert mine.weight.untyped_storage().nbytes() == 10 * width * 8
    torch.testing.assert_close(total, x @ whole.tensor.T + bias.to(DOUBLE))


def test_the_head_of_a_rank_is_its_part_of_the_vocabulary() -> None:
    whole = matrix(101, 64, 0)
    config = llama_config(vocab_size=101)
    last = ShardPacking(config, shard_of(config, 3, 4), TorchPacking(DOUBLE))
    mine = last.pack("head", [whole], None)
    assert isinstance(mine, GatheredLinear)
    assert mine.outputs == 101
    assert torch.equal(mine.weight[:23], whole.tensor[78:])
    assert mine.weight[23:].tolist() == [[0.0] * 64] * 3


def test_a_tied_head_takes_no_memory_beside_the_embedding() -> None:
    embedding = matrix(100, 64, 0).tensor
    tied = TiedMatrix(embedding, TensorMatrix(embedding.to(torch.float32)))
    mine = packing(1, 2).pack("head", [tied], None)
    assert mine.weight.data_ptr() == embedding[50].data_ptr()
    assert mine.weight.shape == (50, 64)


@pytest.mark.parametrize("size", [1, 2])
def test_the_matrices_of_all_ranks_together_are_as_large_as_the_models(
    tmp_path: Path, size: int
) -> None:
    folder = tiny_model(tmp_path, tie_word_embeddings=False)
    whole = load_model(folder, TorchPacking(DOUBLE))
    parts = load_parts(folder, size)
    assert sum(map(matrix_bytes, parts)) == matrix_bytes(whole)
    assert len({matrix_bytes(part) for part in parts}) == 1


def matrix_bytes(model: LoadedModel[Linear]) -> int:
    """Bytes of the memory that the matrices are in, the embedding's apart."""
    linears = [model.head]
    for layer in model.layers:
        linears += [layer.qkv, layer.output, layer.gate_up, layer.down]
    return sum(linear.weight.untyped_storage().nbytes() for linear in linears)


def test_a_ranks_model_has_the_configuration_of_its_part(tmp_path: Path) -> None:
    (first, second) = load_parts(tiny_model(tmp_path, "qwen3"), 2)
    for part in (first, second):
        assert (part.config.num_heads, part.config.num_kv_heads) == (2, 1)
        assert part.config.intermediate_size == 56
        assert part.config.vocab_size == 512
        assert part.embedding.shape == (512, 64)
        assert part.layers[0].query_norm is not None


def test_a_model_that_cannot_be_divided_is_refused_before_its_weights_are_read(
    tmp_path: Path,
) -> None:
    folder = tiny_model(tmp_path)
    (folder.path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"num_key_value_heads 2 cannot be .* 4 processes"):
        load_part(folder, DOUBLE, CPU, 0, 4)
