"""What several tests of tensor parallelism need."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from radix_engine.model.batch import Span
from radix_engine.model.config import ModelConfig, parse_config
from radix_engine.model.linear import Linear, TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.served import Runner
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel
from radix_engine.parallel.group import Group
from radix_engine.parallel.messages import RunnerMaker
from radix_engine.parallel.runner import ParallelRunner, load_parallel
from tests.tiny import make_tiny_folder

NUM_BLOCKS = 64
TOLERANCE = 1e-4
BAD_TOKEN = 499


def tiny_model(path: Path, model_type: str = "llama", **overrides: Any) -> ModelFolder:
    return ModelFolder(make_tiny_folder(path, model_type, **overrides), "tiny")


def one_process(folder: ModelFolder, dtype: torch.dtype = torch.float32) -> ModelRunner:
    return ModelRunner(load_model(folder, TorchPacking(dtype)), NUM_BLOCKS)


def all_processes(
    group: Group,
    folder: ModelFolder,
    dtype: torch.dtype = torch.float32,
    make_runner: RunnerMaker = ModelRunner,
) -> ParallelRunner:
    model = load_parallel(group, folder, dtype, make_runner=make_runner)
    runner = model.make_runner(NUM_BLOCKS, 16)
    assert isinstance(runner, ParallelRunner)
    return runner


def same_logits(
    left: Runner, right: Runner, spans: Sequence[Span], tolerance: float = TOLERANCE
) -> torch.Tensor:
    """Run a step on both and return the logits of the first; they must agree."""
    expected = left.forward(spans)
    logits = right.forward(spans)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected, rtol=0, atol=tolerance)
    return expected


def llama_config(**fields: Any) -> ModelConfig:
    """8 query and 4 KV heads of 8, MLP of 96, vocabulary of 100."""
    raw = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 96,
        "vocab_size": 100,
        "max_position_embeddings": 256,
    }
    return parse_config(raw | fields)


class FragileRunner(ModelRunner):
    """Fails at one token, on every rank but the first."""

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        if dist.get_rank() != 0 and any(BAD_TOKEN in span.tokens for span in spans):
            raise ArithmeticError(f"token {BAD_TOKEN} is too much")
        return super().forward(spans)


def make_nowhere(model: LoadedModel[Linear], num_blocks: int, block_size: int) -> Runner:
    """Fails on every rank but the first."""
    if dist.get_rank() != 0:
        raise MemoryError(f"no room for {num_blocks} blocks")
    return ModelRunner(model, num_blocks, block_size)


def make_stuck(model: LoadedModel[Linear], num_blocks: int, block_size: int) -> Runner:
    """Never ends on rank 1; rank 0 says that it is there."""
    if dist.get_rank() == 1:
        threading.Event().wait()
    if dist.get_rank() == 0:
        print("stuck", flush=True)
    return ModelRunner(model, num_blocks, block_size)
