"""How much of a GPU's memory K and V get: what nothing else needs. Arithmetic only.

::

    |  in use: CUDA, weights, others  |  reserve: workspace, steps, graphs  |  K and V  |       |
    0                                                             total * utilization      total
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from radix_engine.gpu.graphs import capture_sizes
from radix_engine.memory.fp8 import FP8
from radix_engine.memory.sizing import format_size, parse_size
from radix_engine.model.config import ModelConfig

WORKSPACE_BYTES = 256 * 2**20
"""FlashInfer's buffer for parts of attention that are merged later, shared by all layers of all
steps, recorded or not."""

_WRAPPER_BYTES = 64 * 2**20  # FlashInfer's own buffers for each window: two sets of three kinds
_LIBRARIES = 256 * 2**20  # workspaces of cuBLAS, kernels' code, what allocations are rounded by
_GRAPH_WRAPPER_BYTES = 8 * 2**20  # likewise, for each window of each recorded size
_GRAPH_LAYER_BYTES = 96 * 2**10  # what CUDA keeps of a recorded layer: a dozen kernels, 8 KiB each
_GRAPH_ROUNDING_BYTES = 24 * 2**10  # likewise, of the three that round K and V
_GRAPH_LIBRARIES = 32 * 2**20  # cuBLAS's workspace for the stream that is recorded
_LOGIT_BYTES = 64  # float32, and in float64 scores, probabilities and sums, with what sorting holds


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """A GPU's memory before K and V are allocated, in bytes.

    ``used``: taken already, by whomever, and the weights if they are yet to be loaded.
    ``utilization``: the share of ``total`` that may be taken in all. ``reserve``: what steps need
    besides. ``copied_of``: where torch's attention runs, how many layers the model has (else 0): it
    copies the contexts of a step for one layer at a time, at most as much again as one layer holds,
    and more only where requests share prefixes.
    """

    total: int
    used: int
    utilization: float
    reserve: int
    copied_of: int = 0

    @property
    def room(self) -> int:
        """For K and V; below 0 where even the rest does not fit."""
        left = int(self.total * self.utilization) - self.used - self.reserve
        return left * self.copied_of // (self.copied_of + 1) if self.copied_of else left


def gpu_kv_memory_bytes(
    memory: GpuMemory, setting: str | None, kv_bytes_per_token: int, context_length: int
) -> int:
    """Bytes to allocate for K and V.

    Without a ``setting`` all the room there is; ValueError where it does not hold one context of
    ``context_length`` tokens. A ``setting`` (see `parse_size`; a percentage is one of the room) is
    taken as it is; ValueError when it is no size, more than the room, or less than one token.
    """
    room = memory.room
    share = (
        f"--gpu-memory-utilization {memory.utilization:g} of {format_size(memory.total)}, less "
        f"{format_size(memory.used)} in use (weights included) and {format_size(memory.reserve)} "
        "for computing a step,"
    )
    if room < kv_bytes_per_token:
        raise ValueError(
            f"{share} leaves nothing for K and V; use a smaller model, end what else uses the GPU, "
            "or start with a larger --gpu-memory-utilization or a smaller --max-step-tokens"
        )
    if setting is None:
        context = kv_bytes_per_token * context_length
        if room < context:
            raise ValueError(
                f"{share} leaves {format_size(room)} for K and V, and one context of "
                f"{context_length} tokens takes {format_size(context)}; start with a larger "
                "--gpu-memory-utilization or a smaller --max-step-tokens, or with --kv-memory 100% "
                "to refuse what does not fit"
            )
        return room
    size = parse_size(setting, room)
    if size > room:
        raise ValueError(
            f"a KV memory of {setting} ({format_size(size)}) is more than there is room for: "
            f"{share} leaves {format_size(room)}; ask for less, or for a share such as 80%"
        )
    if size < kv_bytes_per_token:
        raise ValueError(
            f"a KV memory of {setting} ({format_size(size)}) does not hold one token "
            f"of {kv_bytes_per_token} bytes; ask for more"
        )
    return size


def weight_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of a model's weights: matrices and biases in ``dtype``, norms in float32."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = _widths(config)
    matrices = hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * inner
    if config.qkv_bias:
        matrices += queries + 2 * keys
    if config.output_bias:
        matrices += hidden
    if config.mlp_bias:
        matrices += 2 * inner + hidden
    norms = 2 * hidden + (2 * config.head_dim if config.qk_norm else 0)
    embeddings = config.vocab_size * hidden * (1 if config.tied_embeddings else 2)
    in_dtype = config.num_layers * matrices + embeddings
    in_float32 = config.num_layers * norms + hidden
    return in_dtype * dtype.itemsize + in_float32 * 4


def step_bytes(
    config: ModelConfig,
    dtype: torch.dtype,
    tokens: int,
    answers: int,
    *,
    flashinfer: bool,
    fp8: bool = False,
) -> int:
    """Bytes that a step of ``tokens`` tokens for ``answers`` answers needs at its widest.

    A token: three rows (residual, norm, output) and the wider of attention (4 times the queries and
    3 times the keys: projected, normed, attended, merged) and MLP (gate, up, product), in
    ``dtype``. With ``fp8`` K and V are rounded before they are attended to, which takes twice the
    queries and 6 times the keys, where that is more. With torch's operations also the widest row
    three times in float32. An answer: 64 bytes for each logit, to choose from. 256 MiB for CUDA's
    libraries. FlashInfer: its workspace, 64 MiB for each window of the model, and the table of its
    rotation. On top comes what nobody can know here: the logits of whole prompts, where they are
    asked for.
    """
    queries, _ = _widths(config)
    hidden, inner = config.hidden_size, config.intermediate_size
    per_token = _token_bytes(config, dtype, fp8)
    kernels = 0
    if flashinfer:
        rotation = config.context_length * config.head_dim * 4
        kernels = WORKSPACE_BYTES + len(set(config.windows)) * _WRAPPER_BYTES + rotation
    else:
        per_token += 3 * max(queries, inner, hidden) * 4
    logits = answers * config.vocab_size * _LOGIT_BYTES
    return tokens * per_token + logits + kernels + _LIBRARIES


def graph_bytes(
    config: ModelConfig, dtype: torch.dtype, limit: int, block_size: int, *, fp8: bool = False
) -> int:
    """Bytes that recorded steps of up to ``limit`` sequences need besides; an estimate, since CUDA
    does not tell what a graph takes before it is made.

    Once: 32 MiB for cuBLAS, the tensors of the largest step (as in `step_bytes`; those of smaller
    ones lie in the same place), 4 bytes for each block of ``limit`` whole contexts, and the block
    that fills steps up. FlashInfer's workspace is that of other steps. For each recorded size: 8
    MiB for each window of the model, 96 KiB for each layer (120 KiB where K and V are rounded to
    ``fp8``), and the rows that the head reads, ``size`` times the hidden size.
    """
    sizes = capture_sizes(limit)
    once = (
        _GRAPH_LIBRARIES
        + limit * _token_bytes(config, dtype, fp8)
        + limit * -(-config.context_length // block_size) * 4
        + block_size * config.kv_bytes_per_token(FP8 if fp8 else dtype)
    )
    wrappers = len(set(config.windows)) * _GRAPH_WRAPPER_BYTES
    layer = _GRAPH_LAYER_BYTES + (_GRAPH_ROUNDING_BYTES if fp8 else 0)
    each = len(sizes) * (wrappers + config.num_layers * layer)
    return once + each + sum(sizes) * config.hidden_size * dtype.itemsize


def _token_bytes(config: ModelConfig, dtype: torch.dtype, fp8: bool) -> int:
    """Of one token's tensors that are there at once, at most."""
    queries, keys = _widths(config)
    hidden, inner = config.hidden_size, config.intermediate_size
    # Projected, normed, K and V side by side, and these rounded, at half the bytes.
    rounding = 2 * queries + 6 * keys if fp8 else 0
    return (3 * hidden + max(4 * queries + 3 * keys, rounding, 3 * inner)) * dtype.itemsize


def _widths(config: ModelConfig) -> tuple[int, int]:
    """Of all query heads together, and of all K heads."""
    return config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
