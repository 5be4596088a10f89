"""Runners of a part of a model that have all their kernels before they are asked for a step.

FlashInfer compiles a kernel when it is first used, which takes minutes, and processes that compute
together give a step less time than that. So each computes some steps for itself beforehand, without
the sums that it makes with the others: one that fails must not leave them waiting.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from radix_engine.gpu.fit import load_flashinfer
from radix_engine.gpu.served import gpu_model
from radix_engine.gpu.warm_steps import warm_up, warm_up_blocks
from radix_engine.model.linear import Linear
from radix_engine.model.served import Runner
from radix_engine.model.weights import LoadedModel


def warm_flashinfer_runner(model: LoadedModel[Linear], num_blocks: int, block_size: int) -> Runner:
    """A runner with FlashInfer's kernels, compiled and loaded. The first time takes minutes.

    Raises ValueError where the package or the memory for K and V is missing, and whatever goes
    wrong in the kernels.
    """
    return _warm_runner(model, load_flashinfer(), num_blocks, block_size)


def warm_flashinfer_fp8_runner(
    model: LoadedModel[Linear], num_blocks: int, block_size: int
) -> Runner:
    """The same, with K and V in fp8, for which FlashInfer has kernels of their own."""
    return _warm_runner(model, load_flashinfer(), num_blocks, block_size, fp8=True)


def warm_torch_runner(model: LoadedModel[Linear], num_blocks: int, block_size: int) -> Runner:
    """A runner with torch's own kernels. Raises as `warm_flashinfer_runner`."""
    return _warm_runner(model, None, num_blocks, block_size)


def _warm_runner(
    model: LoadedModel[Linear],
    flashinfer: Any | None,
    num_blocks: int,
    block_size: int,
    *,
    fp8: bool = False,
) -> Runner:
    config = model.config
    alone = gpu_model(_without_sums(model), flashinfer, fp8=fp8)
    runner = alone.make_runner(warm_up_blocks(config, num_blocks, block_size), block_size)
    warm_up(runner, config)
    del runner  # its memory, before more is taken
    return gpu_model(model, flashinfer, fp8=fp8).make_runner(num_blocks, block_size)


def _without_sums(model: LoadedModel[Linear]) -> LoadedModel[Linear]:
    """The same weights as a small model of their own: it answers nothing, and needs nobody."""
    layers = tuple(
        replace(layer, output=_alone(layer.output), down=_alone(layer.down))
        for layer in model.layers
    )
    return replace(model, layers=layers, head=_alone(model.head))


def _alone(linear: Linear) -> Linear:
    return Linear(linear.weight, linear.bias, linear.packed)
