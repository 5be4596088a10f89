"""How much of a GPU's memory K and V get, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from radix_engine.gpu.sizing import (
    GpuMemory,
    gpu_kv_memory_bytes,
    graph_bytes,
    step_bytes,
    weight_bytes,
)
from radix_engine.model.config import read_config
from radix_engine.model.linear import Linear, TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel
from tests.tiny import make_tiny_folder

GIB = 2**30
MIB = 2**20
MEMORY = GpuMemory(total=80 * GIB, used=20 * GIB, utilization=0.75, reserve=2 * GIB)


def test_k_and_v_get_what_the_share_leaves_after_all_else() -> None:
    assert MEMORY.room == 38 * GIB  # 60 - 20 - 2
    assert gpu_kv_memory_bytes(MEMORY, None, 1000, 8192) == 38 * GIB


def test_torchs_attention_keeps_room_for_one_layers_contexts() -> None:
    assert replace(MEMORY, copied_of=18).room == 36 * GIB  # 18 layers, and one more


def test_a_context_that_does_not_fit_is_refused_with_the_remedies() -> None:
    per_token = MIB
    assert gpu_kv_memory_bytes(MEMORY, None, per_token, 38 * 1024) == 38 * GIB
    with pytest.raises(ValueError, match="one context of 38913 tokens") as failure:
        gpu_kv_memory_bytes(MEMORY, None, per_token, 38 * 1024 + 1)
    for words in (
        "--gpu-memory-utilization 0.75 of 80.0 GiB",
        "20.0 GiB in use",
        "2.0 GiB for computing a step",
        "leaves 38.0 GiB",
        "--max-step-tokens",
        "--kv-memory 100%",
    ):
        assert words in str(failure.value)


def test_what_was_asked_for_is_taken_though_no_context_fits() -> None:
    assert gpu_kv_memory_bytes(MEMORY, "3GiB", MIB, 10**6) == 3 * GIB
    assert gpu_kv_memory_bytes(MEMORY, "50%", MIB, 10**6) == 19 * GIB
    assert gpu_kv_memory_bytes(MEMORY, "100%", MIB, 10**6) == 38 * GIB


def test_more_than_there_is_room_for_is_refused_naming_both() -> None:
    with pytest.raises(ValueError, match=r"40GiB \(40\.0 GiB\) is more .* leaves 38\.0 GiB"):
        gpu_kv_memory_bytes(MEMORY, "40GiB", MIB, 8192)


@pytest.mark.parametrize(
    ("setting", "words"),
    [("999", "does not hold one token of 1000 bytes"), ("much", "is not a size")],
)
def test_a_size_that_is_none_is_refused(setting: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        gpu_kv_memory_bytes(MEMORY, setting, 1000, 8192)


@pytest.mark.parametrize("setting", [None, "1GiB", "50%"])
@pytest.mark.parametrize("used", [58 * GIB, 59 * GIB, 80 * GIB])
def test_a_gpu_that_is_full_is_told(setting: str | None, used: int) -> None:
    with pytest.raises(ValueError, match=r"leaves nothing for K and V; use a smaller model"):
        gpu_kv_memory_bytes(replace(MEMORY, used=used), setting, 1000, 8192)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_weights_are_counted_to_the_byte(tmp_path: Path, model_type: str, tied: bool) -> None:
    biased = {"attention_bias": True, "mlp_bias": True} if model_type == "llama" else {}
    folder = make_tiny_folder(tmp_path, model_type, tie_word_embeddings=tied, **biased)
    # in float16, which no packing lays out anew
    model = load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float16))
    assert weight_bytes(read_config(folder), torch.float16) == bytes_of(model)


def bytes_of(model: LoadedModel[Linear]) -> int:
    """Of all tensors that a loaded model holds, each once."""
    tensors = [model.embedding, model.norm]
    matrices = [model.head]
    for layer in model.layers:
        norms = (layer.input_norm, layer.mlp_norm, layer.query_norm, layer.key_norm)
        tensors += [norm for norm in norms if norm is not None]
        matrices += [layer.qkv, layer.output, layer.gate_up, layer.down]
    for matrix in matrices:
        tensors += [each for each in (matrix.weight, matrix.bias) if each is not None]
    return sum({each.data_ptr(): each.nbytes for each in tensors}.values())


def test_a_step_needs_its_widest_rows_its_logits_and_the_kernels_buffers(tmp_path: Path) -> None:
    # hidden 64, queries 4 * 16, keys 2 * 16, inner 112, vocabulary 512, context 1024
    config = read_config(make_tiny_folder(tmp_path))
    with_flashinfer = step_bytes(config, torch.bfloat16, 100, 3, flashinfer=True)
    rows = 100 * 2 * (3 * 64 + 4 * 64 + 3 * 32)
    logits = 3 * 512 * 64
    assert with_flashinfer == rows + logits + (256 + 64 + 256) * MIB + 1024 * 16 * 4
    with_torch = step_bytes(config, torch.bfloat16, 100, 3, flashinfer=False)
    assert with_torch == rows + 100 * 4 * 3 * 112 + logits + 256 * MIB


def test_each_window_of_a_model_has_buffers_of_its_own(tmp_path: Path) -> None:
    config = read_config(make_tiny_folder(tmp_path))
    windows = replace(config, windows=(None, 100))
    more, less = (
        step_bytes(each, torch.bfloat16, 100, 3, flashinfer=True) for each in (windows, config)
    )
    assert more - less == 64 * MIB


def test_graphs_need_what_is_shared_and_what_each_size_has(tmp_path: Path) -> None:
    # hidden 64, queries 4 * 16, keys 2 * 16, 2 layers, context 1024
    config = read_config(make_tiny_folder(tmp_path))
    found = graph_bytes(config, torch.bfloat16, 16, 16)
    shared = 32 * MIB
    step = 16 * 2 * (3 * 64 + 4 * 64 + 3 * 32)
    indices = 16 * 64 * 4
    dummy = 16 * 2 * 2 * 32 * 2
    sizes = 5 * (8 * MIB + 2 * 96 * 1024)  # 1, 2, 4, 8 and 16
    rows = 31 * 64 * 2
    assert found == shared + step + indices + dummy + sizes + rows
    windows = replace(config, windows=(None, 100))
    assert graph_bytes(windows, torch.bfloat16, 16, 16) - found == 5 * 8 * MIB


def test_k_and_v_in_fp8_make_a_block_smaller_and_add_kernels_to_graphs(tmp_path: Path) -> None:
    config = read_config(make_tiny_folder(tmp_path))
    plain, fp8 = (graph_bytes(config, torch.bfloat16, 16, 16, fp8=given) for given in (False, True))
    block = 16 * 2 * 2 * 32  # tokens, layers, K and V, heads; a byte less for each number
    kernels = 5 * 2 * 24 * 1024  # sizes, layers
    assert fp8 - plain == kernels - block


def test_rounding_to_fp8_decides_where_it_is_wider(tmp_path: Path) -> None:
    config = read_config(make_tiny_folder(tmp_path))

    def row(fp8: bool, kv_heads: int) -> int:
        wide = replace(config, num_kv_heads=kv_heads)
        one, two = (
            step_bytes(wide, torch.bfloat16, tokens, 0, flashinfer=True, fp8=fp8)
            for tokens in (1, 2)
        )
        return two - one

    # hidden 64, queries 4 * 16, inner 112; keys 2 * 16, then as many as queries
    assert row(True, 2) == row(False, 2) == 2 * (3 * 64 + 4 * 64 + 3 * 32)
    assert row(False, 4) == 2 * (3 * 64 + 4 * 64 + 3 * 64)
    assert row(True, 4) == 2 * (3 * 64 + 2 * 64 + 6 * 64)


def test_a_wide_mlp_decides_where_it_is_wider_than_attention(tmp_path: Path) -> None:
    config = replace(read_config(make_tiny_folder(tmp_path)), intermediate_size=1000)
    one, two = (step_bytes(config, torch.float32, n, 0, flashinfer=False) for n in (1, 2))
    assert two - one == 4 * (3 * 64 + 3 * 1000) + 4 * 3 * 1000
