"""What an engine needs of a model, whichever way its forward pass is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from radix_engine.model.batch import Span
from radix_engine.model.linear import Linear
from radix_engine.model.runner import ModelRunner
from radix_engine.model.sampling_draw import Drawer
from radix_engine.model.sampling_params import SamplingParams
from radix_engine.model.transformers_model import TransformersModel, TransformersRunner
from radix_engine.model.weights import LoadedModel


class Blocks(Protocol):
    """The memory of K and V: so many blocks of so many tokens."""

    num_blocks: int
    block_size: int

    @property
    def bytes_per_block(self) -> int: ...


class Runner(Protocol):
    """Runs a model's forward pass over blocks of K and V that it owns. One thread at a time."""

    @property
    def memory(self) -> Blocks: ...

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """One step: float32 logits [all that the spans want, vocabulary]."""
        ...

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Before a step: copy the first rows of blocks, as (source, target, rows)."""
        ...


class Processes(Protocol):
    """The other processes that a model is computed in."""

    def is_alive(self) -> bool:
        """Whether all of them can compute. From any thread; never blocks."""
        ...

    def close(self) -> None:
        """End them, in 10 s at most. A second call does nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model, and how to get a runner for it.

    ``weights`` and ``kv_dtype`` say how these are stored (bf16, fp16, fp32, fp8, int8, int4),
    ``kernels`` what computes (amx, avx512_bf16, avx512, avx2, flashinfer, torch-cuda, torch or
    transformers). ``exact``: K, V and logits of a token are the same bits whatever was cached and
    whoever shared the batch. ``make_runner`` takes the number of blocks and their size in tokens;
    it raises ModelError, ValueError or OSError.
    ``look_ahead``: a step is computed while the host plans the next one. ``step_tokens``: so many a
    step make prompts fast, and let other answers wait some tenths of a second at most.
    ``processes``: those that compute it besides this one, if any; to be closed after the last step.
    ``make_drawer`` makes what draws random tokens from its logits, which may take minutes the first
    time; None, or one that returns None: torch does.
    """

    name: str
    vocab_size: int
    context_length: int
    weights: str
    kv_dtype: str
    kernels: str
    exact: bool
    eos_token_ids: frozenset[int]
    sampling: SamplingParams
    load_seconds: float
    make_runner: Callable[[int, int], Runner]
    step_tokens: int = 256
    look_ahead: bool = False
    processes: Processes | None = None
    make_drawer: Callable[[], Drawer | None] | None = None


def torch_model(model: LoadedModel[Linear]) -> ServedModel:
    """A Llama-family model on torch's own kernels."""

    def make_runner(num_blocks: int, block_size: int) -> Runner:
        return ModelRunner(model, num_blocks, block_size)

    return ServedModel(
        name=model.name,
        vocab_size=model.config.vocab_size,
        context_length=model.config.context_length,
        weights=dtype_name(model.dtype),
        kv_dtype=dtype_name(model.dtype),
        kernels="torch",
        exact=False,
        eos_token_ids=model.eos_token_ids,
        sampling=model.sampling,
        load_seconds=model.load_seconds,
        make_runner=make_runner,
    )


def transformers_model(model: TransformersModel) -> ServedModel:
    """Any other model, computed by transformers but for its attention."""

    def make_runner(num_blocks: int, block_size: int) -> Runner:
        return TransformersRunner(model, num_blocks, block_size)

    return ServedModel(
        name=model.name,
        vocab_size=model.vocab_size,
        context_length=model.context_length,
        weights=dtype_name(model.dtype),
        kv_dtype=dtype_name(model.dtype),
        kernels="transformers",
        exact=False,
        eos_token_ids=model.eos_token_ids,
        sampling=model.sampling,
        load_seconds=model.load_seconds,
        make_runner=make_runner,
    )


def dtype_name(dtype: torch.dtype) -> str:
    """The short name of a dtype that weights, K and V come in."""
    return {
        torch.float32: "fp32",
        torch.bfloat16: "bf16",
        torch.float16: "fp16",
        torch.float8_e4m3fn: "fp8",
    }[dtype]
