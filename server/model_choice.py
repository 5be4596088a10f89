"""Which way a model is computed: on a GPU, by compiled kernels, by torch, or by transformers."""

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
from radix_engine.gpu.fit import GpuFacts, gpu_memory, load_flashinfer
from radix_engine.gpu.graphs import capture_limit
from radix_engine.gpu.served import STEP_TOKENS, Recording, gpu_model
from radix_engine.gpu.sizing import (
    GpuMemory,
    gpu_kv_memory_bytes,
    graph_bytes,
    step_bytes,
    weight_bytes,
)
from radix_engine.memory.sizing import available_memory_bytes, kv_memory_bytes
from radix_engine.model.config import ModelConfig, read_config
from radix_engine.model.errors import ModelError
from radix_engine.model.linear import TorchPacking, pick_dtype
from radix_engine.model.load import LoadProgress, load_model
from radix_engine.model.served import ServedModel, torch_model, transformers_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import choose_forward, read_transformers_config
from radix_engine.parallel.shard import local_config
from server.gpu_choice import GpuWay, gpu_way, on_processor, refuse_of_gpu
from server.options import BLOCK_SIZE, EngineOptions
from server.parallel_choice import check_gpus, load_divided

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """How a model will be computed, and what its K and V take, before its weights are read.

    ``load`` reads them. ``kv_memory``: the bytes that K and V get of the memory that is free now,
    given whether the weights are loaded; it raises ValueError where that is too little.
    """

    context_length: int
    kv_bytes_per_block: int
    kv_memory: Callable[[bool], int]
    load: Callable[[LoadProgress | None], ServedModel]


def choose(folder: ModelFolder, options: EngineOptions, threads: int, gpu: GpuFacts) -> ModelChoice:
    """Decide from a model's configuration, the options and this machine with its ``gpu``.

    The first time this may compile the kernels, which takes some seconds. Raises ModelError or
    ValueError, with a message for the user, where the model or an option cannot be served.
    """
    if choose_forward(folder.path) == "transformers":
        return _with_transformers(folder, options)
    config = read_config(folder.path)
    size = options.tensor_parallel
    way = gpu_way(local_config(config, size), options, gpu)
    if way is not None:
        check_gpus(size)
        logger.info(way.says + (f", in {size} processes on as many GPUs" if size > 1 else ""))
        return with_gpu(folder, config, options, way)
    if (line := on_processor(options, gpu)) is not None:
        logger.warning(line)
    kernels, why_not = _kernels(config, options)
    if kernels is not None:
        return _with_kernels(folder, config, options, kernels, threads)
    _refuse_without_kernels(options, why_not)
    logger.warning("Computing with torch, which is slower and not exact to the bit: %s", why_not)
    dtype = pick_dtype(options.dtype)

    def load(progress: LoadProgress | None) -> ServedModel:
        if size > 1:
            timeout_s = options.step_timeout_s
            return load_divided(folder, dtype, size, None, progress, step_timeout_s=timeout_s)
        return torch_model(load_model(folder, TorchPacking(dtype), progress=progress))

    block = config.kv_bytes_per_token(dtype) * BLOCK_SIZE
    return _choice(options, config.context_length, block, load)


def with_gpu(
    folder: ModelFolder,
    config: ModelConfig,
    options: EngineOptions,
    way: GpuWay,
    read_memory: Callable[[torch.device], tuple[int, int]] = gpu_memory,
) -> ModelChoice:
    """A Llama-family model on a GPU, or on several. ``read_memory``: a GPU's bytes that are free,
    and all.

    What is computed of memory is about each GPU: they are taken to be as free as the first.
    """
    size = options.tensor_parallel
    config = local_config(config, size)
    per_token = config.kv_bytes_per_token(way.kv_dtype)
    running = options.limits.max_running
    tokens = options.limits.max_step_tokens or max(STEP_TOKENS, running)
    reserve = step_bytes(config, way.dtype, tokens, running, flashinfer=way.flashinfer, fp8=way.fp8)
    copied_of = 0 if way.flashinfer else config.num_layers
    recording: Recording | None = None
    if way.flashinfer and way.device.type == "cuda" and size == 1:
        recording = Recording(capture_limit(running))
        reserve += graph_bytes(config, way.dtype, recording.limit, BLOCK_SIZE, fp8=way.fp8)

    def kv_memory(weights_loaded: bool) -> int:
        free, total = read_memory(way.device)
        used = total - free + (0 if weights_loaded else weight_bytes(config, way.dtype))
        memory = GpuMemory(total, used, options.gpu_memory_utilization, reserve, copied_of)
        return gpu_kv_memory_bytes(memory, options.kv_memory, per_token, config.context_length)

    def load(progress: LoadProgress | None) -> ServedModel:
        flashinfer = load_flashinfer() if way.flashinfer else None
        packing = TorchPacking(way.dtype, way.device)
        try:
            if size > 1:
                timeout_s = options.step_timeout_s
                return load_divided(
                    folder, way.dtype, size, way, progress, step_timeout_s=timeout_s
                )
            model = load_model(folder, packing, way.device, progress)
            warm = way.flashinfer and way.device.type == "cuda"
            return gpu_model(model, flashinfer, recording, way.fp8, warm=warm)
        except torch.OutOfMemoryError as error:
            raise ModelError(
                f"the weights of {folder.name} do not fit into what is free of the GPU's memory; "
                "end what else uses it, or use a smaller model"
            ) from error

    return ModelChoice(config.context_length, per_token * BLOCK_SIZE, kv_memory, load)


def _choice(
    options: EngineOptions,
    context_length: int,
    kv_bytes_per_block: int,
    load: Callable[[LoadProgress | None], ServedModel],
) -> ModelChoice:
    """A model on the processor."""

    def kv_memory(_: bool) -> int:
        available, per_token = available_memory_bytes(), kv_bytes_per_block // BLOCK_SIZE
        return kv_memory_bytes(options.kv_memory, available, per_token, context_length)

    return ModelChoice(context_length, kv_bytes_per_block, kv_memory, load)


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
    return _choice(options, config.context_length, block, load)


def _with_transformers(folder: ModelFolder, options: EngineOptions) -> ModelChoice:
    config = read_transformers_config(folder.path)
    by = f"a model of type {config.model_type} is computed by transformers, on the processor"
    if options.attention == "flashinfer":
        raise ValueError(f"--attention flashinfer is for models of the Llama family, and {by}")
    if options.kernels not in ("auto", "torch"):
        raise ValueError(f"--kernels {options.kernels} is for models of the Llama family, and {by}")
    if options.tensor_parallel > 1:
        name = f"--tensor-parallel {options.tensor_parallel}"
        raise ValueError(f"{name} is for models of the Llama family, and {by}")
    refuse_of_gpu(options, by)
    _refuse_without_kernels(options, by)
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

    block = config.kv_values_per_token * dtype.itemsize * BLOCK_SIZE
    return _choice(options, config.context_length, block, load)


def _kernels(config: ModelConfig, options: EngineOptions) -> tuple[Kernels | None, str]:
    """The compiled kernels; or None and why not."""
    if options.tensor_parallel > 1:
        return None, (
            f"--tensor-parallel {options.tensor_parallel} on a processor is there to try it, and "
            "slower than one process with the compiled kernels"
        )
    for name, value in (("kernels", options.kernels), ("attention", options.attention)):
        if value == "torch":
            return None, f"--{name} torch was asked for"
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
