"""What several tests of the model need: a loaded tiny model, runs over it, block tables."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from radix_engine.model.batch import Span
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.source import ModelFolder
from tests.tiny import make_tiny_folder


def tiny_runner(
    path: Path,
    model_type: str = "llama",
    *,
    num_blocks: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    **overrides: Any,
) -> ModelRunner:
    folder = make_tiny_folder(path / "model", model_type, **overrides)
    model = load_model(ModelFolder(folder, "tiny"), TorchPacking(dtype))
    return ModelRunner(model, num_blocks, block_size)


def random_tokens(count: int, seed: int = 0, below: int = 500) -> list[int]:
    return random.Random(seed).choices(range(below), k=count)


def logits_of(
    runner: ModelRunner, tokens: Sequence[int], table: Sequence[int], start: int = 0
) -> torch.Tensor:
    """Logits [vocabulary] after the last token, run as one span from ``start``."""
    return runner.forward([Span(tokens, start, table, 1)])[0]


def greedy(
    runner: ModelRunner, prompt: Sequence[int], count: int, table: Sequence[int]
) -> list[int]:
    """``count`` greedy tokens, one step each after the prompt."""
    answer = [int(logits_of(runner, prompt, table).argmax())]
    while len(answer) < count:
        position = len(prompt) + len(answer) - 1
        answer.append(int(logits_of(runner, answer[-1:], table, position).argmax()))
    return answer
