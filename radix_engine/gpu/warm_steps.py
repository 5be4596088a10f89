"""Steps that have FlashInfer compile and load its kernels, before a step is asked for.

A kernel that is not there is compiled when it is first used, which takes minutes. Which ones a step
uses depends on its spans and on the model's windows.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from radix_engine.attention.flashinfer_pages import CASCADE_TOKENS
from radix_engine.model.batch import Span
from radix_engine.model.config import ModelConfig
from radix_engine.model.served import Runner

_TOKENS = 2  # of each prompt


def warm_up(runner: Runner, config: ModelConfig) -> None:
    """Have each kind of kernels used once. Writes into the first blocks of the runner's memory, so
    nobody must have any yet.

    Raises whatever goes wrong in the kernels. Cost: six steps of two spans.
    """
    memory = runner.memory
    for spans in warm_up_steps(config, memory.num_blocks, memory.block_size):
        logits = runner.forward(spans)
        if logits.device.type == "cuda":
            torch.cuda.synchronize(logits.device)  # what goes wrong on the device shows here


def warm_up_steps(config: ModelConfig, num_blocks: int, block_size: int) -> Iterator[list[Span]]:
    """Steps that use each kind of kernels once, in at most ``num_blocks`` blocks.

    Prompts and single tokens; of contexts that are short, that have a prefix long enough to be read
    once for all, and that are longer than each of the model's windows, as far as there is room.
    """
    blocks = warm_up_blocks(config, num_blocks, block_size)
    table = list(range(blocks))
    end = min(config.context_length, blocks * block_size)
    last = max(0, end - 2 * _TOKENS)
    for start in sorted({0, min(CASCADE_TOKENS, last), last}):
        for count in (_TOKENS, 1):
            places = [at for at in (start, start + count) if at + count <= end]
            if places:
                yield [Span([0] * count, at, table, 1) for at in places]


def warm_up_blocks(config: ModelConfig, num_blocks: int, block_size: int) -> int:
    """For contexts that are long enough, as far as the model and the memory allow."""
    longest = max((window for window in config.windows if window is not None), default=0)
    tokens = min(config.context_length, max(longest, CASCADE_TOKENS) + block_size)
    return min(num_blocks, -(-tokens // block_size))
