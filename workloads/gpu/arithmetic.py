"""What a step must at least read and compute, and what measured times come to. Arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from radix_engine.gpu.sizing import weight_bytes
from radix_engine.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class DecodeCase:
    """``batch`` sequences whose new token sees ``context`` tokens, itself included."""

    batch: int
    context: int

    def blocks(self, block_size: int) -> int:
        """That it needs, each sequence its own."""
        return self.batch * -(-self.context // block_size)


def fitting(
    cases: Sequence[DecodeCase], blocks: int, block_size: int
) -> tuple[list[DecodeCase], list[DecodeCase]]:
    """Those that fit so many blocks, and those that do not."""
    fits = [case for case in cases if case.blocks(block_size) <= blocks]
    return fits, [case for case in cases if case not in fits]


def decode_bytes(config: ModelConfig, dtype: torch.dtype, case: DecodeCase) -> int:
    """Bytes that a decode step must read: all weights but the embedding's other rows, K and V."""
    weights = weight_bytes(config, dtype)
    if not config.tied_embeddings:
        weights -= config.vocab_size * config.hidden_size * dtype.itemsize
    return weights + case.batch * case.context * config.kv_bytes_per_token(dtype)


def prompt_operations(config: ModelConfig, tokens: int) -> int:
    """Multiplications and additions of a prompt of which only the last token wants logits."""
    hidden, width = config.hidden_size, config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    weights = hidden * (width + 2 * keys) + width * hidden + 3 * hidden * config.intermediate_size
    pairs = tokens * (tokens + 1) // 2
    layer = 2 * tokens * weights + 4 * width * pairs
    return config.num_layers * layer + 2 * hidden * config.vocab_size


def least_ms(num_bytes: int, bytes_per_second: float) -> float:
    """How long the memory takes to deliver so many bytes."""
    return num_bytes / bytes_per_second * 1000


def copy_rate(num_bytes: int, milliseconds: float) -> float:
    """Bytes a second that memory moves, of a copy: each byte is read and written."""
    return 2 * num_bytes / milliseconds * 1000


def share_of_rate(operations: int, milliseconds: float, per_second: float) -> float:
    """Which part of a rate of operations was reached."""
    return operations / (milliseconds / 1000) / per_second


def scaled_ms(step_ms: float, head_ms: float, layers: int, of_layers: int) -> float:
    """What a step of ``layers`` layers would take with ``of_layers`` of them.

    ``head_ms`` is the part of ``step_ms`` that does not depend on the layers.
    """
    return head_ms + max(0.0, step_ms - head_ms) * of_layers / layers


@dataclass(frozen=True, slots=True)
class HostTime:
    """What the host adds to a step of ``device_ms``: where the next step is launched while the
    device is busy (``ahead_ms`` from one step to the next), and where the host waits for each
    step's end first (``alone_ms``)."""

    device_ms: float
    ahead_ms: float
    alone_ms: float

    @property
    def visible_ahead_ms(self) -> float:
        """Host time that look-ahead does not hide; 0 where the device never waits."""
        return max(0.0, self.ahead_ms - self.device_ms)

    @property
    def visible_alone_ms(self) -> float:
        """Host time that shows without look-ahead."""
        return max(0.0, self.alone_ms - self.device_ms)
