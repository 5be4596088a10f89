"""Runners of a part of a model that have all their kernels before they are asked for a step.

FlashInfer compiles a kernel when it is first used, which takes minutes, and processes that compute
together give a step less time than that. So each computes some steps for itself beforehand, without
the sums that it makes with the others: one that fails must not leave them waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from radix_engine.attention.flashinfer_pages import CASCADE_TOKENS
from radix_engine.gpu.fit import load_flashinfer
from radix_engine.gpu.served import gpu_model
from radix_engine.model.batch import Span
from radix_engine.model.config import ModelConfig
from radix_engine.model.linear import Linear
from radix_engine.model.served import Runner
from radix_engine.model.weights import LoadedModel

_TOKENS = 2  # of each prompt


def warm_flashinfer_runner(model: LoadedModel[Linear], num_blocks: int, block_size: int) -> Runner:
    """A runner with FlashInfer's kernels, compiled and loaded. The first time takes minutes.

    Raises ValueError where the package or the memory for K and V is missing, and whatever goes
    wrong in the kernels.
    """
    return _warm_runner(model, load_flashinfer(), num_blocks, block_size)


def warm_torch_runner(model: LoadedModel[Linear], num_blocks: int, block_size: int) -> Runner:
    """A runner with torch's own kernels. Raises as `warm_flashinfer_runner`."""
    return _warm_runner(model, None, num_blocks, block_size)


def warm_up_steps(config: ModelConfig, num_blocks: int, block_size: int) -> Iterator[list[Span]]:
    """Steps that use each kind of kernels once, in at most ``num_blocks`` blocks.

    Prompts and single tokens; of contexts shorter and, where there is room, longer than each of the
    model's windows, and than what a shared prefix must have to be read once for all.
    """
    blocks = _blocks(config, num_blocks, block_size)
    table = list(range(blocks))
    end = min(config.context_length, blocks * block_size)
    for start in sorted({0, max(0, end - 2 * _TOKENS)}):
        for count in (_TOKENS, 1):
            places = [at for at in (start, start + count) if at + count <= end]
            if places:
                yield [Span([0] * count, at, table, 1) for at in places]


def _warm_runner(
    model: LoadedModel[Linear], flashinfer: Any | None, num_blocks: int, block_size: int
) -> Runner:
    config = model.config
    alone = gpu_model(_without_sums(model), flashinfer)
    runner = alone.make_runner(_blocks(config, num_blocks, block_size), block_size)
    for spans in warm_up_steps(config, num_blocks, block_size):
        runner.forward(spans).cpu()  # so that what goes wrong on the device shows here
    del runner  # its memory, before more is taken
    return gpu_model(model, flashinfer).make_runner(num_blocks, block_size)


def _blocks(config: ModelConfig, num_blocks: int, block_size: int) -> int:
    """For contexts that are long enough, as far as the model and the memory allow."""
    longest = max((window for window in config.windows if window is not None), default=0)
    tokens = min(config.context_length, max(longest, CASCADE_TOKENS) + block_size)
    return min(num_blocks, -(-tokens // block_size))


def _without_sums(model: LoadedModel[Linear]) -> LoadedModel[Linear]:
    """The same weights as a small model of their own: it answers nothing, and needs nobody."""
    layers = tuple(
        replace(layer, output=_alone(layer.output), down=_alone(layer.down))
        for layer in model.layers
    )
    return replace(model, layers=layers, head=_alone(model.head))


def _alone(linear: Linear) -> Linear:
    return Linear(linear.weight, linear.bias, linear.packed)
