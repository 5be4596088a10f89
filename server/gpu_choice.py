"""Whether a model is computed on a GPU, and by what: decided from options and facts alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from radix_engine.gpu.fit import LEAST_CAPABILITY, GpuFacts, why_no_gpu, why_not, why_not_model
from radix_engine.model.config import ModelConfig
from radix_engine.model.linear import pick_dtype
from server.options import EngineOptions


@dataclass(frozen=True, slots=True)
class GpuWay:
    """``flashinfer``: its kernels compute; else torch's. ``says``: which and why, in one line."""

    device: torch.device
    dtype: torch.dtype
    flashinfer: bool
    says: str


def may_use_gpu(options: EngineOptions) -> bool:
    """Whether to look for a GPU at all: a kind of kernels is a choice of the processor."""
    return options.kernels == "auto"


def refuse_early(options: EngineOptions, facts: GpuFacts) -> None:
    """Raise ValueError where FlashInfer was asked for and no model could be computed with it."""
    if options.attention == "flashinfer" and (line := why_not(facts)) is not None:
        raise ValueError(f"--attention flashinfer: {line}")


def gpu_way(config: ModelConfig, options: EngineOptions, facts: GpuFacts) -> GpuWay | None:
    """How a Llama-family model is computed on the GPU; None: on the processor.

    Raises ValueError for options that a GPU cannot honour, naming them.
    """
    refuse_early(options, facts)
    if not may_use_gpu(options) or why_no_gpu(facts) is not None:
        return None
    dtype = _dtype(options, facts)
    _refuse_of_processor(options, dtype, facts)
    reason = why_not(facts) or why_not_model(config, dtype)
    if options.attention == "flashinfer" and reason is not None:
        raise ValueError(f"--attention flashinfer: {reason}; use --attention torch")
    if options.attention == "torch":
        reason = "--attention torch was asked for"
    says = f"Computing on {facts.device} with "
    if reason is None:
        says += "FlashInfer, whose kernels fit it"
    else:
        says += f"torch's attention, which is slower: {reason}"
    return GpuWay(torch.device("cuda", facts.index), dtype, reason is None, says)


def on_processor(options: EngineOptions, facts: GpuFacts) -> str | None:
    """A line for the log where somebody might expect a GPU to be used and it is not."""
    expected = facts.torch_cuda is not None or facts.driver_cuda is not None
    line = why_no_gpu(facts)
    if not expected or line is None or not may_use_gpu(options):
        return None
    return f"Computing on the processor: {line}"


def _dtype(options: EngineOptions, facts: GpuFacts) -> torch.dtype:
    """``auto`` is bf16 where the GPU multiplies in it."""
    if options.dtype != "auto":
        return pick_dtype(options.dtype)
    fast = facts.capability is not None and facts.capability >= LEAST_CAPABILITY
    return torch.bfloat16 if fast else torch.float32


def _refuse_of_processor(options: EngineOptions, dtype: torch.dtype, facts: GpuFacts) -> None:
    kv_types = ("auto", "bf16" if dtype == torch.bfloat16 else "fp32")
    for given, name in (
        (options.quantization is not None, f"--quantization {options.quantization}"),
        (options.kv_dtype not in kv_types, f"--kv-dtype {options.kv_dtype}"),
        (options.exact, "--exact"),
    ):
        if given:
            raise ValueError(
                f"{name} needs the kernels for the processor, and this model would be computed on "
                f"{facts.device}; leave it out, or hide the GPU: CUDA_VISIBLE_DEVICES= (empty)"
            )
