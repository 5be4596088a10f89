"""Tensors read from a GGUF file where they lie: order of rows, blocks, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from safetensors.torch import load_file

from radix_engine.model.config import read_config
from radix_engine.model.errors import ModelError
from radix_engine.model.gguf_files import GGUFFiles, unpaired
from radix_engine.model.gguf_header import read_gguf_header
from radix_engine.model.gguf_names import tensor_shapes
from radix_engine.model.weights import MatrixSource
from tests.model.gguf_writing import write_gguf
from tests.tiny import make_tiny_folder

QUERIES = "model.layers.0.self_attn.q_proj.weight"
DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return make_tiny_folder(tmp_path / "original", tokenizer=True, intermediate_size=96)


def open_file(tmp_path: Path, original: Path, **options: Any) -> GGUFFiles:
    architecture = options.get("architecture", "llama")
    file = write_gguf(tmp_path / f"{architecture}.gguf", original, **options)
    return GGUFFiles(file, read_gguf_header(file), read_config(original))


def matrix(files: GGUFFiles, original: Path, name: str) -> MatrixSource:
    return files.matrix(name, *tensor_shapes(read_config(original))[name])


def test_rows_of_a_pair_are_taken_apart_within_each_head() -> None:
    rows = np.arange(8, dtype=np.uint8).reshape(8, 1)
    assert unpaired(rows, heads=2).ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert unpaired(rows, heads=1).ravel().tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


def test_all_tensors_are_those_that_the_file_was_written_from(
    tmp_path: Path, original: Path
) -> None:
    files = open_file(tmp_path, original)
    for name, tensor in load_file(original / "model.safetensors").items():
        if tensor.ndim == 2:
            source = matrix(files, original, name)
            assert source.shape == tuple(tensor.shape)
            assert source.blocks() is None
            assert torch.equal(source.dense(torch.float32), tensor), name
        else:
            assert torch.equal(files.vector(name, len(tensor)), tensor), name


def test_biases_of_q_and_k_are_put_in_order_with_their_rows(tmp_path: Path) -> None:
    original = make_tiny_folder(tmp_path / "biased", tokenizer=True, attention_bias=True)
    weights = load_file(original / "model.safetensors")
    names = {"attn_q": ("q_proj", 4), "attn_k": ("k_proj", 2)}
    tensors = {}
    for index in range(2):
        for short, (name, heads) in names.items():
            bias = weights[f"model.layers.{index}.self_attn.{name}.bias"].numpy()
            paired = bias.reshape(heads, 2, 8).swapaxes(1, 2).reshape(-1)
            tensors[f"blk.{index}.{short}.bias"] = paired
    files = open_file(tmp_path, original, tensors=tensors)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        bias = weights[f"model.layers.1.self_attn.{name}.bias"]
        assert torch.equal(files.vector(f"model.layers.1.self_attn.{name}.bias", len(bias)), bias)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("name", [QUERIES, DOWN])
def test_blocks_are_the_files_own_with_their_rows_in_order(
    kind: str, name: str, tmp_path: Path, original: Path
) -> None:
    source = matrix(open_file(tmp_path, original, kind=kind), original, name)
    blocks = source.blocks()
    assert blocks is not None
    assert (blocks.kind, blocks.rows, blocks.columns) == (kind, *source.shape)
    number = GGMLQuantizationType[kind]
    written = quants.quantize(load_file(original / "model.safetensors")[name].numpy(), number)
    assert np.array_equal(blocks.data, written)
    values = torch.from_numpy(quants.dequantize(written, number))
    assert torch.equal(source.dense(torch.float32), values)
    assert torch.equal(source.dense(torch.bfloat16), values.to(torch.bfloat16))


@pytest.mark.parametrize(
    ("kind", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16), ("Q5_0", None)]
)
def test_other_kinds_have_no_blocks_of_their_own(
    kind: str, dtype: torch.dtype | None, tmp_path: Path, original: Path
) -> None:
    source = matrix(open_file(tmp_path, original, kind=kind), original, QUERIES)
    assert source.blocks() is None
    values = source.dense(torch.float32)
    weights = load_file(original / "model.safetensors")[QUERIES]
    if dtype is None:
        # Steps of a 16th of the largest of 32 weights: off by half of one, or one at the end.
        assert (values - weights).abs().max() <= weights.abs().max() / 16
    else:
        assert torch.equal(values, weights.to(dtype).to(torch.float32))


def test_a_missing_tensor_is_named_with_its_file(tmp_path: Path, original: Path) -> None:
    message = r"tensor blk\.1\.ffn_up\.weight is missing from .*llama\.gguf"
    with pytest.raises(ModelError, match=message):
        open_file(tmp_path, original, tensors={"blk.1.ffn_up.weight": None})


def test_a_tensor_that_would_be_left_out_is_refused(tmp_path: Path, original: Path) -> None:
    tensors = {"blk.0.attn_q_norm.weight": np.ones(16, np.float32)}
    with pytest.raises(ModelError, match=r"attn_q_norm\.weight in .*llama\.gguf is none that a ll"):
        open_file(tmp_path, original, tensors=tensors)


def test_rotary_frequencies_are_no_weights(tmp_path: Path, original: Path) -> None:
    open_file(tmp_path, original, tensors={"rope_freqs.weight": np.ones(8, np.float32)})


def test_a_wrong_shape_is_named_with_both_shapes(tmp_path: Path, original: Path) -> None:
    tensors = {"blk.0.attn_v.weight": np.zeros((64, 32), np.float32)}
    message = r"attn_v\.weight in .*\.gguf has the shape \[64, 32\], but .* asks for \[32, 64\]"
    with pytest.raises(ModelError, match=message):
        open_file(tmp_path, original, tensors=tensors)


def test_a_type_that_cannot_be_read_is_named_with_those_that_can(
    tmp_path: Path, original: Path
) -> None:
    message = r"blk\.0\.ffn_down\.weight in .*\.gguf is of the type TQ1_0, which .*Q4_1.*Q6_K, BF16"
    wide = make_tiny_folder(tmp_path / "wide", tokenizer=True, intermediate_size=256)
    with pytest.raises(ModelError, match=message):
        open_file(tmp_path, wide, kinds={"blk.0.ffn_down.weight": "TQ1_0"})


def test_a_vector_in_blocks_is_refused(tmp_path: Path, original: Path) -> None:
    with pytest.raises(ModelError, match=r"output_norm\.weight in .* is a vector of the type Q8_0"):
        open_file(tmp_path, original, kinds={"output_norm.weight": "Q8_0"})


def test_a_file_that_ends_inside_a_tensor_is_refused(tmp_path: Path, original: Path) -> None:
    file = write_gguf(tmp_path / "cut.gguf", original)
    header = read_gguf_header(file)
    last = max(header.tensors.values(), key=lambda info: info.offset)
    with file.open("r+b") as opened:
        opened.truncate(last.offset + 100)
    with pytest.raises(ModelError, match=rf"cut\.gguf is cut short: it ends inside .*{last.name}"):
        GGUFFiles(file, header, read_config(original))
