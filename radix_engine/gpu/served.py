"""A Llama-family model on a GPU: with FlashInfer's kernels, or torch's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.flashinfer_graphs import FlashInferGraphs
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.gpu.graphs import CaptureProgress, CudaRecorder, GraphRecorder, GraphRunner
from radix_engine.gpu.ops import FlashInferOps, TorchOps
from radix_engine.gpu.runner import GpuRunner
from radix_engine.gpu.sampling_trial import flashinfer_drawer
from radix_engine.gpu.sizing import WORKSPACE_BYTES
from radix_engine.gpu.warm_steps import warm_up
from radix_engine.memory.fp8 import FP8
from radix_engine.memory.kv_memory import KVMemory
from radix_engine.memory.sizing import format_size
from radix_engine.model.linear import Linear
from radix_engine.model.served import Runner, ServedModel, dtype_name
from radix_engine.model.weights import LoadedModel

logger = logging.getLogger(__name__)

STEP_TOKENS = 2048
"""Enough to keep a GPU's multipliers busy; more only lets other answers wait."""


@contextmanager
def progress_bar() -> Iterator[CaptureProgress]:
    """A bar on stderr, where that is a terminal."""
    with tqdm(desc="Recording", unit=" graphs", leave=False, disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress


@dataclass(frozen=True, slots=True)
class Recording:
    """That steps of up to ``limit`` sequences are recorded as graphs when a runner is made, how,
    and who is told how far that is."""

    limit: int
    make_recorder: Callable[[torch.device], GraphRecorder] = CudaRecorder
    show: Callable[[], AbstractContextManager[CaptureProgress]] = progress_bar


def gpu_model(
    model: LoadedModel[Linear],
    flashinfer: Any | None,
    recording: Recording | None = None,
    fp8: bool = False,
    *,
    warm: bool = False,
) -> ServedModel:
    """``flashinfer``: the package, as `load_flashinfer` returns it; None: torch's kernels, of which
    nothing is recorded.

    The model's device decides where all of it lies. The memory of a runner that records has one
    block more than it is asked for, which it keeps to itself. ``fp8``: it holds K and V in `FP8`,
    which only FlashInfer reads; raises ValueError for torch's kernels. ``warm``: a runner computes
    some steps before it is handed out, so that FlashInfer compiles what it has not compiled yet.
    """
    if fp8 and flashinfer is None:
        raise ValueError("K and V in fp8 need FlashInfer's attention: use --kv-dtype auto")
    kv_dtype = FP8 if fp8 else model.dtype

    def make_runner(num_blocks: int, block_size: int) -> Runner:
        try:
            if flashinfer is None:
                memory = _memory(model, num_blocks, block_size, kv_dtype)
                return GpuRunner(model, memory, TorchAttention(memory), TorchOps())
            spare = 0 if recording is None else 1
            memory = _memory(model, num_blocks + spare, block_size, kv_dtype)
            lent = without_last_block(memory) if spare else memory
            runner, attention = _runner(model, lent, flashinfer)
            if warm:
                logger.info("Warming up; FlashInfer may compile kernels now: minutes, once")
                warm_up(runner, model.config)
            if recording is None:
                return runner
            return _recorded(runner, attention, memory, recording)
        except torch.OutOfMemoryError as error:
            size = num_blocks * block_size * model.config.kv_bytes_per_token(kv_dtype)
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
        kv_dtype=dtype_name(kv_dtype),
        kernels="torch-cuda" if flashinfer is None else "flashinfer",
        exact=False,
        eos_token_ids=model.eos_token_ids,
        sampling=model.sampling,
        load_seconds=model.load_seconds,
        make_runner=make_runner,
        step_tokens=STEP_TOKENS,
        look_ahead=model.device.type == "cuda",
        make_drawer=None
        if flashinfer is None
        else partial(flashinfer_drawer, flashinfer, model.device, model.config.vocab_size),
    )


def _memory(
    model: LoadedModel[Linear], num_blocks: int, block_size: int, dtype: torch.dtype
) -> KVMemory:
    config = model.config
    return KVMemory(
        config.num_layers,
        num_blocks,
        block_size,
        config.num_kv_heads,
        config.head_dim,
        dtype,
        model.device,
    )


def _runner(
    model: LoadedModel[Linear], memory: KVMemory, flashinfer: Any
) -> tuple[GpuRunner, FlashInferAttention]:
    attention = FlashInferAttention(
        memory,
        model.config.num_heads,
        flashinfer,
        dtype=model.dtype,
        workspace_bytes=WORKSPACE_BYTES,
    )
    return GpuRunner(model, memory, attention, FlashInferOps(flashinfer)), attention


def _recorded(
    runner: GpuRunner, attention: FlashInferAttention, memory: KVMemory, recording: Recording
) -> GraphRunner:
    """Of a runner over all blocks of ``memory`` but the last, which fills up recorded steps."""
    model = runner.model
    graphs = FlashInferGraphs(
        attention.flashinfer,
        memory,
        attention.heads,
        model.config.windows,
        largest=recording.limit,
        context_length=model.config.context_length,
        workspace=attention.workspace,
    )
    recorder = recording.make_recorder(model.device)
    recorded = GraphRunner(runner, graphs.attention, recorder, memory.num_blocks - 1)
    with recording.show() as progress:
        taken = recorded.capture(recording.limit, progress)
    logger.info(
        "Recorded steps of up to %d sequences as CUDA graphs, which took %d MiB",
        recording.limit,
        taken // 2**20,
    )
    return recorded


def without_last_block(memory: KVMemory) -> KVMemory:
    """The same memory, of which nobody sees the last block."""
    fewer = copy(memory)
    fewer.num_blocks -= 1
    fewer.layers = tuple(layer[:-1] for layer in memory.layers)
    return fewer
