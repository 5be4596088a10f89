"""Which way a model is computed: compiled kernels, torch's own, or transformers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from radix_engine.cpu.build import BuildError, build
from radix_engine.cpu.library import Kernels
from radix_engine.cpu.packing import CpuPacking
from radix_engine.cpu.processor import KINDS, KernelKind, read_processor, usable_kinds
from radix_engine.cpu.runner import layer_block_bytes, unsupported
from radix_engine.cpu.served import cpu_model
from radix_engine.model.config import ModelConfig, read_config
from radix_engine.model.errors import ModelError
from radix_engine.model.linear import TorchPacking, pick_dtype
from radix_engine.model.load import LoadProgress, load_model
from radix_engine.model.served import ServedModel, torch_model, transformers_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import choose_forward, read_transformers_config
from server.options import BLOCK_SIZE, EngineOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """How a model will be computed, and what its K and V take, before its weights are read.

    ``load`` reads them.
    """

    context_length: int
    kv_bytes_per_block: int
    load: Callable[[LoadProgress | None], ServedModel]


def choose(folder: ModelFolder, options: EngineOptions, threads: int) -> ModelChoice:
    """Decide from a model's configuration, the options and this machine.

    The first time this may compile the kernels, which takes some seconds. Raises ModelError or
    ValueError, with a message for the user, where the model or an option cannot be served.
    """
    if choose_forward(folder.path) == "transformers":
        return _with_transformers(folder, options)
    config = read_config(folder.path)
    kernels, why_not = _kernels(config, options)
    if kernels is not None:
        return _with_kernels(folder, config, options, kernels, threads)
    _refuse_without_kernels(options, why_not)
    logger.warning("Computing with torch, which is slower and not exact to the bit: %s", why_not)
    dtype = pick_dtype(options.dtype)

    def load(progress: LoadProgress | None) -> ServedModel:
        return torch_model(load_model(folder, TorchPacking(dtype), progress=progress))

    return ModelChoice(config.context_length, config.kv_bytes_per_token(dtype) * BLOCK_SIZE, load)


def _with_kernels(
    folder: ModelFolder,
    config: ModelConfig,
    options: EngineOptions,
    kernels: Kernels,
    threads: int,
) -> ModelChoice:
    native = "bf16" if kernels.kind.bf16 else "fp32"
    dtype = native if options.dtype == "auto" else options.dtype
    weights = options.quantization or dtype
    kv_type = options.kv_dtype if options.kv_dtype != "auto" else dtype
    if options.quantization is not None:
        _check_groups(config, options.quantization)

    def load(progress: LoadProgress | None) -> ServedModel:
        embedding = torch.bfloat16 if dtype == "bf16" else torch.float32
        packing = CpuPacking(kernels, weights, embedding)
        return cpu_model(load_model(folder, packing, progress=progress), kernels, kv_type, threads)

    block = config.num_layers * layer_block_bytes(kernels, config, kv_type)
    return ModelChoice(config.context_length, block, load)


def _with_transformers(folder: ModelFolder, options: EngineOptions) -> ModelChoice:
    config = read_transformers_config(folder.path)
    _refuse_without_kernels(
        options, f"a model of type {config.model_type} is computed by transformers"
    )
    dtype = pick_dtype(options.dtype)
    logger.warning(
        "Computing a model of type %s with transformers: slower than models of the Llama family, "
        "and not exact to the bit",
        config.model_type,
    )

    def load(progress: LoadProgress | None) -> ServedModel:
        # Here, since it imports transformers' models, which takes seconds.
        from radix_engine.model.transformers_load import load_transformers_model

        return transformers_model(load_transformers_model(folder, dtype))

    return ModelChoice(
        config.context_length, config.kv_values_per_token * dtype.itemsize * BLOCK_SIZE, load
    )


def _kernels(config: ModelConfig, options: EngineOptions) -> tuple[Kernels | None, str]:
    """The compiled kernels; or None and why not."""
    if options.kernels == "torch":
        return None, "--kernels torch was asked for"
    if (reason := unsupported(config)) is not None:
        return None, f"the kernels do not cover {reason}"
    usable = usable_kinds(read_processor())
    if options.kernels != "auto":
        usable = [kind for kind in usable if kind.name == options.kernels]
        if not usable:
            raise ValueError(f"--kernels {options.kernels} do not run on this processor")
    if not usable:
        least = ", ".join(sorted(KINDS[-1].features))
        return None, f"this processor lacks instructions that the kernels need ({least})"
    return _built(usable[0])


def _built(kind: KernelKind) -> tuple[Kernels | None, str]:
    try:
        return Kernels(build(kind, say=logger.info), kind), ""
    except (BuildError, OSError) as error:
        return None, str(error)


def _refuse_without_kernels(options: EngineOptions, why_not: str) -> None:
    for given, name in (
        (options.quantization is not None, f"--quantization {options.quantization}"),
        (options.kv_dtype not in ("auto", options.dtype), f"--kv-dtype {options.kv_dtype}"),
        (options.exact, "--exact"),
    ):
        if given:
            raise ValueError(f"{name} needs the compiled kernels, but {why_not}")


def _check_groups(config: ModelConfig, quantization: str) -> None:
    sizes = {
        "intermediate_size": config.intermediate_size,
        "num_attention_heads * head_dim": config.num_heads * config.head_dim,
    }
    for name, size in sizes.items():
        if size % 32:
            raise ModelError(
                f"--quantization {quantization} needs a {name} that is a multiple of 32, not {size}"
            )
