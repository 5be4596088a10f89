"""The compiled forward pass of each family is transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.cpu.library import Kernels
from radix_engine.cpu.runner import CpuRunner
from radix_engine.model.batch import Span
from tests.cpu.running import runner_of, tiny_folder
from tests.model.helpers import random_tokens

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, head of its own": ("llama", {"tie_word_embeddings": False}),
    "llama 3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "smollm, 9 and 3 heads of 64": (
        "llama",
        {"hidden_size": 288, "head_dim": 64, "num_attention_heads": 9, "num_key_value_heads": 3},
    ),
    "mistral": ("mistral", {"head_dim": 128}),
    "mistral, window": ("mistral", {"sliding_window": 37}),
    "qwen2": ("qwen2", {}),
    "qwen2, window in the upper layer": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 50, "max_window_layers": 1},
    ),
    "qwen3, heads of 80": ("qwen3", {"head_dim": 80}),
}
PROMPT_TOKENS = 300
NEW_TOKENS = 6


def greedy(runner: CpuRunner, prompt: list[int], count: int) -> tuple[list[int], torch.Tensor]:
    table = list(range(runner.memory.num_blocks))
    logits = [runner.forward([Span(prompt, 0, table, len(prompt))])]
    answer = [int(logits[0][-1].argmax())]
    while len(answer) < count:
        start = len(prompt) + len(answer) - 1
        logits.append(runner.forward([Span(answer[-1:], start, table, 1)]))
        answer.append(int(logits[-1][-1].argmax()))
    return answer, torch.cat(logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_and_logits_equal_transformers(
    kernels: Kernels, family: str, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    model_type, overrides = FAMILIES[family]
    folder = tiny_folder(tmp_path, model_type, **overrides)
    prompt = random_tokens(PROMPT_TOKENS)
    reference: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=0,
    )[0]
    with torch.inference_mode():
        expected = reference(ids[None, :-1]).logits[0]
    answer, logits = greedy(runner_of(kernels, folder), prompt, NEW_TOKENS)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    assert answer == ids[len(prompt) :].tolist()
