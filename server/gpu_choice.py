"""Whether a model is computed on a GPU, and by what: decided from options and facts alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from radix_engine.gpu.fit import LEAST_CAPABILITY, GpuFacts, why_no_gpu, why_not, why_not_model
from radix_engine.memory.fp8 import FP8
from radix_engine.model.config import ModelConfig
from radix_engine.model.linear import pick_dtype
from radix_engine.model.served import dtype_name
from server.options import EngineOptions


@dataclass(frozen=True, slots=True)
class GpuWay:
    """``flashinfer``: its kernels compute; else torch's. ``says``: which and why, in one line.
    ``fp8``: K and V are kept in it; else in ``dtype``, as the weights."""

    device: torch.device
    dtype: torch.dtype
    flashinfer: bool
    says: str
    fp8: bool = False

    @property
    def kv_dtype(self) -> torch.dtype:
        """Of K and V in memory."""
        return FP8 if self.fp8 else self.dtype


def may_use_gpu(options: EngineOptions) -> bool:
    """Whether to look for a GPU at all: a kind of kernels is a choice of the processor."""
    return options.kernels == "auto"


def refuse_early(options: EngineOptions, facts: GpuFacts) -> None:
    """Raise ValueError where FlashInfer was asked for and no model could be computed with it, or a
    dtype that needs a GPU where none will compute."""
    if options.attention == "flashinfer" and (line := why_not(facts)) is not None:
        raise ValueError(f"--attention flashinfer: {line}")
    if not may_use_gpu(options):
        refuse_of_gpu(options, f"--kernels {options.kernels} was asked for")
    elif (line := why_no_gpu(facts)) is not None:
        refuse_of_gpu(options, line)


def refuse_of_gpu(options: EngineOptions, why: str) -> None:
    """Raise ValueError for dtypes that only a GPU computes with, where the processor does: ``why``,
    in one line."""
    for given, name, taken in (
        (options.dtype == "fp16", "--dtype fp16", "bf16 or fp32"),
        (
            options.kv_dtype in ("fp16", "fp8"),
            f"--kv-dtype {options.kv_dtype}",
            "bf16, fp32 or, with its compiled kernels, int8",
        ),
    ):
        if given:
            raise ValueError(
                f"{name} is for a GPU; the processor, which would compute this model, takes auto, "
                f"{taken} (no GPU is used: {why})"
            )


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
    fp8 = options.kv_dtype == "fp8"
    if fp8 and reason is not None:
        raise ValueError(
            "--kv-dtype fp8 needs FlashInfer's attention, and this model would be computed with "
            f"torch's: {reason}; or leave --kv-dtype out"
        )
    says = f"Computing on {facts.device} with "
    if reason is None:
        says += "FlashInfer, whose kernels fit it"
    else:
        says += f"torch's attention, which is slower: {reason}"
    return GpuWay(torch.device("cuda", facts.index), dtype, reason is None, says, fp8)


def on_processor(options: EngineOptions, facts: GpuFacts) -> str | None:
    """A line for the log where somebody might expect a GPU to be used and it is not."""
    expected = facts.torch_cuda is not None or facts.driver_cuda is not None
    line = why_no_gpu(facts)
    if not expected or line is None or not may_use_gpu(options):
        return None
    return f"Computing on the processor: {line}"


def _dtype(options: EngineOptions, facts: GpuFacts) -> torch.dtype:
    """``auto`` is bf16 where the GPU multiplies in it."""
    if options.dtype == "fp16":
        return torch.float16
    if options.dtype != "auto":
        return pick_dtype(options.dtype)
    fast = facts.capability is not None and facts.capability >= LEAST_CAPABILITY
    return torch.bfloat16 if fast else torch.float32


def _refuse_of_processor(options: EngineOptions, dtype: torch.dtype, facts: GpuFacts) -> None:
    kept = ("auto", dtype_name(dtype), "fp8")
    if options.kv_dtype == "fp16" and options.kv_dtype not in kept:
        raise ValueError(f"--kv-dtype fp16 needs --dtype fp16, and not {dtype_name(dtype)}")
    for given, name, instead in (
        (options.quantization is not None, f"--quantization {options.quantization}", ""),
        (options.kv_dtype == "int8", "--kv-dtype int8", "take --kv-dtype fp8, "),
        (options.kv_dtype not in kept, f"--kv-dtype {options.kv_dtype}", ""),
        (options.exact, "--exact", ""),
    ):
        if given:
            raise ValueError(
                f"{name} needs the kernels for the processor, and this model would be computed on "
                f"{facts.device}; {instead}leave it out, or hide the GPU: CUDA_VISIBLE_DEVICES= "
                "(empty)"
            )
