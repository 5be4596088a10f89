"""A model that takes the same time for every step and has no K and V: what is left of a step's time
is the engine's own, and the tree may be as large as one likes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from radix_engine.model.batch import Span
from radix_engine.model.sampling_params import SamplingParams
from radix_engine.model.served import Runner, ServedModel

_CONTEXT_TOKENS = 1 << 20


@dataclass(slots=True)
class NoMemory:
    """Blocks that hold nothing."""

    num_blocks: int
    block_size: int
    bytes_per_block: int = 1 << 16  # for what is told


class TimedRunner:
    """Waits, as for a device, and always thinks of the same token. ``began``: when each step's
    forward pass began, on the clock of ``perf_counter``."""

    def __init__(self, num_blocks: int, block_size: int, vocabulary: int, step_s: float) -> None:
        self.memory = NoMemory(num_blocks, block_size)
        self.began: list[float] = []
        self._step_s = step_s
        self._row = torch.zeros(vocabulary)
        self._row[vocabulary // 2] = 1.0

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """The same logits for all that want some."""
        self.began.append(time.perf_counter())
        time.sleep(self._step_s)
        return self._row.repeat(sum(span.num_logits for span in spans), 1)

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """There is nothing to copy."""


def timed_model(vocabulary: int, step_s: float, made: list[TimedRunner]) -> ServedModel:
    """Such a model; its runner is put into ``made``."""

    def make_runner(num_blocks: int, block_size: int) -> Runner:
        made.append(TimedRunner(num_blocks, block_size, vocabulary, step_s))
        return made[-1]

    return ServedModel(
        name="timed",
        vocab_size=vocabulary,
        context_length=_CONTEXT_TOKENS,
        weights="fp32",
        kv_dtype="fp32",
        kernels="torch",
        exact=False,
        eos_token_ids=frozenset(),
        sampling=SamplingParams(temperature=0.0),
        load_seconds=0.0,
        make_runner=make_runner,
    )
