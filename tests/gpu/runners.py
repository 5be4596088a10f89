"""Runners over tiny models that tests of the GPU's forward pass compare."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.gpu.ops import FlashInferOps, TorchOps
from radix_engine.gpu.runner import GpuRunner
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.model.batch import Span
from radix_engine.model.linear import Linear
from radix_engine.model.runner import ModelRunner
from radix_engine.model.served import Runner
from radix_engine.model.weights import LoadedModel
from tests.gpu.binding import bound_fake
from tests.model.helpers import tiny_runner

NUM_BLOCKS = 64

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, all biases, own head, scaled": (
        "llama",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "mistral, windows": ("mistral", {"sliding_window": 21, "num_hidden_layers": 3}),
    "qwen2": ("qwen2", {"tie_word_embeddings": False}),
    "qwen3": ("qwen3", {}),
    "qwen3, some windows": (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 21,
            "max_window_layers": 1,
            "num_hidden_layers": 3,
        },
    ),
}


def memory_of(model: LoadedModel[Linear], num_blocks: int = NUM_BLOCKS) -> KVMemory:
    config = model.config
    return KVMemory(
        config.num_layers, num_blocks, 16, config.num_kv_heads, config.head_dim, model.dtype
    )


def over_torch(model: LoadedModel[Linear]) -> GpuRunner:
    memory = memory_of(model)
    return GpuRunner(model, memory, TorchAttention(memory), TorchOps())


def over_flashinfer(model: LoadedModel[Linear]) -> GpuRunner:
    memory, fake = memory_of(model), bound_fake()
    attention = FlashInferAttention(memory, model.config.num_heads, fake, workspace_bytes=2**20)
    return GpuRunner(model, memory, attention, FlashInferOps(fake))


MAKERS: dict[str, Callable[[LoadedModel[Linear]], GpuRunner]] = {
    "torch": over_torch,
    "flashinfer": over_flashinfer,
}


def tiny_model(path: Path, family: str, **overrides: Any) -> ModelRunner:
    model_type, fields = FAMILIES[family]
    return tiny_runner(path, model_type, **{"head_dim": 64, **fields, **overrides})


def tables(*blocks: int, seed: int = 0) -> list[list[int]]:
    """Block tables of these lengths, of blocks in no order; the last block is in none."""
    shuffled = random.Random(seed).sample(range(NUM_BLOCKS - 1), sum(blocks))
    result = []
    for count in blocks:
        result.append(shuffled[:count])
        del shuffled[:count]
    return result


def all_logits(runner: Runner, tokens: Sequence[int]) -> torch.Tensor:
    """Logits after every token of a prompt that is run whole, in blocks of its own."""
    (table,) = tables(-(-len(tokens) // 16), seed=9)
    return runner.forward([Span(tokens, 0, table, len(tokens))])


def assert_near(left: torch.Tensor, right: torch.Tensor) -> None:
    assert left.dtype == torch.float32
    torch.testing.assert_close(left, right, rtol=0, atol=1e-4)
