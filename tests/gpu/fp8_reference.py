"""Attention in torch whose K and V are in the model's dtype, but rounded to what fp8 can be."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from radix_engine.attention.interface import AttentionSpan
from radix_engine.attention.torch_paged import TorchAttention, TorchPlan
from radix_engine.model.linear import Linear
from radix_engine.model.runner import ModelRunner
from radix_engine.model.weights import LoadedModel


def as_fp8(values: torch.Tensor) -> torch.Tensor:
    """The nearest numbers of float8_e4m3fn, in the dtype of the values.

    By arithmetic: 3 bits behind the leading one, whose power of two is -6 or more; ties to even; at
    most 448. NaN stays NaN.
    """
    wide = values.double()
    _, exponent = torch.frexp(wide)  # of a fraction from 0.5 to 1
    step = torch.exp2((exponent - 1).clamp(min=-6).double() - 3)
    return (torch.round(wide / step) * step).clamp(-448, 448).to(values.dtype)


class RoundingAttention(TorchAttention):
    """`TorchAttention` that writes what `as_fp8` makes of K and V."""

    def plan(self, spans: Sequence[AttentionSpan]) -> TorchPlan:
        return _RoundingPlan(self.memory, spans)


class _RoundingPlan(TorchPlan):
    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().write(layer, as_fp8(keys), as_fp8(values))


def rounding_runner(
    model: LoadedModel[Linear], num_blocks: int, block_size: int = 16
) -> ModelRunner:
    """A model's own runner over K and V that are rounded to fp8."""
    runner = ModelRunner(model, num_blocks, block_size)
    runner.attention = RoundingAttention(runner.memory)
    return runner
