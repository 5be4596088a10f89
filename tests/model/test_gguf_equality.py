"""A GGUF file of each architecture has the weights and tokens here that it has in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GgufConfig

from radix_engine.model.config import read_config
from radix_engine.model.gguf_files import GGUFFiles
from radix_engine.model.gguf_header import read_gguf_header
from radix_engine.model.gguf_names import tensor_shapes
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.source import resolve_model
from tests.model.gguf_writing import write_gguf
from tests.model.helpers import greedy, random_tokens
from tests.tiny import make_tiny_folder

TABLE = [7, 3, 40, 0, 22, 9]

# The architecture as the file calls it, the model's folder, and the kinds of its matrices.
VARIANTS: dict[str, tuple[str, str, dict[str, Any], str, dict[str, str]]] = {
    "llama Q4_1": (
        "llama",
        "llama",
        {"scale": 0.3},
        "Q4_1",
        {"token_embd.weight": "Q8_0", "blk.0.attn_q.weight": "Q4_0"},
    ),
    "llama untied F32": ("llama", "llama", {"tie_word_embeddings": False}, "F32", {}),
    "mistral Q8_0": ("llama", "mistral", {"tie_word_embeddings": False}, "Q8_0", {}),
    "qwen2 F16": ("qwen2", "qwen2", {}, "F16", {"blk.1.ffn_up.weight": "Q5_1"}),
    "qwen3 Q4_0": (
        "qwen3",
        "qwen3",
        {"head_dim": 128},  # transformers does not read it from the file: 128 is its default
        "Q4_0",
        {"blk.1.ffn_down.weight": "BF16", "blk.0.attn_k.weight": "Q5_0"},
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_and_greedy_tokens_equal_those_of_transformers(
    variant: str, tmp_path: Path
) -> None:
    architecture, model_type, overrides, kind, kinds = VARIANTS[variant]
    original = make_tiny_folder(
        tmp_path / "original", model_type, tokenizer=True, intermediate_size=96, **overrides
    )
    file = write_gguf(tmp_path / "tiny.gguf", original, architecture, kind=kind, kinds=kinds)
    reference: Any = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file=file.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    folder = resolve_model(str(file), tmp_path / "cache")
    config = read_config(folder.path)

    files = GGUFFiles(file, read_gguf_header(file), config)
    theirs = dict(reference.state_dict())
    if config.tied_embeddings:
        del theirs["lm_head.weight"]
    assert theirs.keys() == tensor_shapes(config).keys()
    for name, tensor in theirs.items():
        if tensor.ndim == 2:
            assert torch.equal(files.matrix(name, *tensor.shape).dense(torch.float32), tensor), name
        else:
            assert torch.equal(files.vector(name, len(tensor)), tensor), name

    runner = ModelRunner(load_model(folder, TorchPacking(torch.float32)), 64)
    tokens = random_tokens(60)
    generated = reference.generate(
        torch.tensor([tokens]), max_new_tokens=20, do_sample=False, eos_token_id=None
    )
    assert greedy(runner, tokens, 20, TABLE) == generated[0, len(tokens) :].tolist()
