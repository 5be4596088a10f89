"""The forward pass computes what transformers computes with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from radix_engine.model.batch import Span
from tests.model.helpers import greedy, random_tokens, tiny_runner

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama untied": ("llama", {"tie_word_embeddings": False}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama with llama3 scaling": ("llama", {"rope_scaling": LLAMA3_ROPE}),
    "llama with linear scaling": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}},
    ),
    "llama without grouped heads": ("llama", {"num_key_value_heads": 4}),
    "llama with wide heads": ("llama", {"head_dim": 32}),
    "mistral": ("mistral", {"tie_word_embeddings": False}),
    "qwen2": ("qwen2", {}),
    "qwen2 untied": ("qwen2", {"tie_word_embeddings": False}),
    "qwen3": ("qwen3", {}),
    "qwen3 untied": ("qwen3", {"tie_word_embeddings": False}),
}

TABLE = [7, 3, 40, 0, 22, 9, 61, 30, 31]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_greedy_tokens_equal_those_of_transformers(variant: str, tmp_path: Path) -> None:
    model_type, overrides = VARIANTS[variant]
    runner = tiny_runner(tmp_path, model_type, **overrides)
    reference: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    tokens = random_tokens(100)
    ends = [1, 2, 16, 17, 60, 100]
    with torch.no_grad():
        expected = reference(torch.tensor([tokens])).logits[0, [end - 1 for end in ends]]
    logits = torch.cat([runner.forward([Span(tokens[:end], 0, TABLE, 1)]) for end in ends])
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)

    generated = reference.generate(
        torch.tensor([tokens]), max_new_tokens=24, do_sample=False, eos_token_id=None
    )
    assert greedy(runner, tokens, 24, TABLE) == generated[0, len(tokens) :].tolist()


def test_the_kv_of_a_block_is_k_then_v_with_tokens_before_heads(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path)
    reference: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    tokens = random_tokens(20)
    runner.forward([Span(tokens, 0, [5, 2], 0)])
    with torch.no_grad():
        cached = reference(torch.tensor([tokens]), use_cache=True).past_key_values
    for layer, memory in enumerate(runner.memory.layers):
        for index, states in enumerate((cached.layers[layer].keys, cached.layers[layer].values)):
            written = torch.cat((memory[5, index], memory[2, index, :4]))
            torch.testing.assert_close(written, states[0].transpose(0, 1), rtol=0, atol=1e-5)
            assert not memory[2, index, 4:].any()
            assert not memory[[0, 1, 3, 4, 6], index].any()


def test_bf16_logits_stay_close_to_fp32(tmp_path: Path) -> None:
    tokens = random_tokens(50)
    exact = tiny_runner(tmp_path / "fp32").forward([Span(tokens, 0, TABLE, 1)])
    rounded = tiny_runner(tmp_path / "bf16", dtype=torch.bfloat16)
    assert rounded.memory.layers[0].dtype == torch.bfloat16
    logits = rounded.forward([Span(tokens, 0, TABLE, 1)])
    assert logits.dtype == torch.float32
    assert (logits - exact).abs().max() < 0.03 * exact.abs().max()
