"""A Llama-family model on a GPU: with FlashInfer's kernels, or torch's own."""

from __future__ import annotations

from typing import Any

import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.gpu.ops import FlashInferOps, TorchOps
from radix_engine.gpu.runner import GpuRunner
from radix_engine.gpu.sizing import WORKSPACE_BYTES
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.memory.sizing import format_size
from radix_engine.model.linear import Linear
from radix_engine.model.served import Runner, ServedModel, dtype_name
from radix_engine.model.weights import LoadedModel

STEP_TOKENS = 2048
"""Enough to keep a GPU's multipliers busy; more only lets other answers wait."""


def gpu_model(model: LoadedModel[Linear], flashinfer: Any | None) -> ServedModel:
    """``flashinfer``: the package, as `load_flashinfer` returns it; None: torch's kernels.

    The model's device decides where all of it lies.
    """

    def make_runner(num_blocks: int, block_size: int) -> Runner:
        try:
            return _runner(model, flashinfer, num_blocks, block_size)
        except torch.OutOfMemoryError as error:
            size = num_blocks * block_size * model.config.kv_bytes_per_token(model.dtype)
            raise ValueError(
                f"a KV memory of {format_size(size)} cannot be allocated beside what else is in "
                "the GPU's memory; end what else uses it, or start with a smaller "
                "--gpu-memory-utilization or --kv-memory"
            ) from error

    return ServedModel(
        name=model.name,
        vocab_size=model.config.vocab_size,
        context_length=model.config.context_length,
        weights=dtype_name(model.dtype),
        kv_dtype=dtype_name(model.dtype),
        kernels="torch-cuda" if flashinfer is None else "flashinfer",
        exact=False,
        eos_token_ids=model.eos_token_ids,
        sampling=model.sampling,
        load_seconds=model.load_seconds,
        make_runner=make_runner,
        step_tokens=STEP_TOKENS,
    )


def _runner(
    model: LoadedModel[Linear], flashinfer: Any | None, num_blocks: int, block_size: int
) -> GpuRunner:
    config = model.config
    memory = KVMemory(
        config.num_layers,
        num_blocks,
        block_size,
        config.num_kv_heads,
        config.head_dim,
        model.dtype,
        model.device,
    )
    if flashinfer is None:
        return GpuRunner(model, memory, TorchAttention(memory), TorchOps())
    attention = FlashInferAttention(
        memory, config.num_heads, flashinfer, workspace_bytes=WORKSPACE_BYTES
    )
    return GpuRunner(model, memory, attention, FlashInferOps(flashinfer))
