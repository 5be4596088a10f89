"""What a Llama-family layer computes between its matrix products and its attention.

`TorchOps` is the reference; `FlashInferOps` calls one fused kernel each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from radix_engine.model.config import ModelConfig
from radix_engine.model.rope import inverse_frequencies, rotate, rotation

ROPE_HEAD_DIMS = (64, 128, 256, 512)
"""The head dimensions that FlashInfer's rotation knows."""

# Its activation reads 16 bytes at a time, from the gate's and from the up projection's half.
_VECTOR_BYTES = 16

Rotate = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Rotates queries [tokens, heads, head_dim] and keys [tokens, kv_heads, head_dim] in place to
their positions, int32 [tokens]. Both may be views into one wider tensor. Positions are not looked
at (that would wait for the device): the caller keeps them within the model's context."""


class Ops(Protocol):
    """The operations, each computed in float32 inside, on any device and in any one dtype."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Norm over the last dimension times ``weight``, a new tensor in ``x``'s dtype.

        ``x`` is [rows, size], or [rows, heads, size] for a norm per head, of which each row may be
        part of a wider one; ``weight`` is [size] in the same dtype.
        """
        ...

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """``residual += x`` in place; returns the norm of the sum, [rows, size] as both are.

        What ``x`` holds afterwards is undefined: the result may lie in it.
        """
        ...

    def rope(self, config: ModelConfig, device: torch.device) -> Rotate:
        """The rotation of one model, scaling applied; made once.

        Raises ValueError for a head dimension that there is no kernel for.
        """
        ...

    def silu_and_mul(self, both: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up of ``both`` [rows, 2 * inner], the gate first: a new [rows, inner]."""
        ...


class TorchOps:
    """The operations in plain torch: the reference, on any device."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See `Ops.rms_norm`."""
        return _norm(x.to(torch.float32), weight, eps).to(x.dtype)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """See `Ops.add_rms_norm`. The norm is of the sum before it is rounded, as in FlashInfer."""
        total = residual.to(torch.float32) + x.to(torch.float32)
        residual.copy_(total)
        return _norm(total, weight, eps).to(x.dtype)

    def rope(self, config: ModelConfig, device: torch.device) -> Rotate:
        """See `Ops.rope`. Any even head dimension."""
        frequencies = inverse_frequencies(config).to(device)

        def rotate_both(queries: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor) -> None:
            cosines, sines = rotation(positions, frequencies)
            for heads in (queries, keys):
                heads.copy_(rotate(heads.to(torch.float32), cosines, sines))

        return rotate_both

    def silu_and_mul(self, both: torch.Tensor) -> torch.Tensor:
        """See `Ops.silu_and_mul`."""
        gate, up = both.to(torch.float32).chunk(2, dim=-1)
        return F.silu(gate).mul_(up).to(both.dtype)


@dataclass(frozen=True, slots=True)
class FlashInferOps:
    """The operations as kernels of ``flashinfer``, the module.

    What its kernels take on trust is checked here and raises ValueError: dtypes that differ, rows
    that do not lie as the kernel reads them. Nothing waits for the device. The kernels know float16
    and bfloat16, and say so themselves when given anything else.
    """

    flashinfer: Any

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See `Ops.rms_norm`."""
        _check_norm(x, weight)
        normed: torch.Tensor = self.flashinfer.rmsnorm(x, weight, eps)
        return normed

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """See `Ops.add_rms_norm`. The result is ``x``."""
        _check_norm(x, weight)
        if x.dim() != 2 or residual.shape != x.shape or residual.dtype != x.dtype:
            raise ValueError(
                f"a sum needs two equal tensors of rows, not {_form(x)} and {_form(residual)}"
            )
        _check_last_dim("the residual", residual)
        self.flashinfer.fused_add_rmsnorm(x, residual, weight, eps)
        return x

    def rope(self, config: ModelConfig, device: torch.device) -> Rotate:
        """See `Ops.rope`. Keeps a table of 4 * head_dim bytes for each position of the context."""
        if config.head_dim not in ROPE_HEAD_DIMS:
            known = ", ".join(map(str, ROPE_HEAD_DIMS))
            raise ValueError(
                f"FlashInfer rotates heads of {known} dimensions, not of {config.head_dim}"
            )
        return _TableRotation(self.flashinfer, config.head_dim, cos_sin_table(config, device))

    def silu_and_mul(self, both: torch.Tensor) -> torch.Tensor:
        """See `Ops.silu_and_mul`."""
        inner = both.shape[-1] // 2
        if not both.is_contiguous() or inner * both.itemsize % _VECTOR_BYTES:
            raise ValueError(
                "an activation needs contiguous rows, each half a multiple of "
                f"{_VECTOR_BYTES} bytes, not {_form(both)} with strides {both.stride()}"
            )
        product: torch.Tensor = self.flashinfer.silu_and_mul(both)
        return product


@dataclass(frozen=True, slots=True)
class _TableRotation:
    """FlashInfer's rotation by a table of cosines and sines."""

    flashinfer: Any
    head_dim: int
    table: torch.Tensor

    def __call__(self, queries: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor) -> None:
        if positions.dtype != torch.int32 or positions.dim() != 1 or not positions.is_contiguous():
            raise ValueError(f"positions must be contiguous int32, not {_form(positions)}")
        if queries.dtype != keys.dtype:
            raise ValueError(f"{queries.dtype} queries do not go with {keys.dtype} keys")
        flat_queries, flat_keys = (
            self._flat(name, heads, len(positions))
            for name, heads in (("queries", queries), ("keys", keys))
        )
        self.flashinfer.apply_rope_with_cos_sin_cache_inplace(
            positions, flat_queries, flat_keys, self.head_dim, self.table, is_neox=True
        )

    def _flat(self, name: str, heads: torch.Tensor, rows: int) -> torch.Tensor:
        """The view [rows, heads * head_dim]; a copy would be rotated in vain."""
        if heads.dim() != 3 or heads.shape[0] != rows or heads.shape[2] != self.head_dim:
            raise ValueError(
                f"{name} of {rows} tokens in heads of {self.head_dim} cannot be {_form(heads)}"
            )
        _check_last_dim(name, heads)
        if heads.shape[1] > 1 and heads.stride(1) != self.head_dim:
            raise ValueError(f"{name} must have their heads side by side, not {heads.stride()}")
        return heads.view(rows, -1)


def cos_sin_table(config: ModelConfig, device: torch.device) -> torch.Tensor:
    """Cosines, then sines, of every position of the context: float32 [context, head_dim]."""
    positions = torch.arange(config.context_length, dtype=torch.float32)
    angles = positions.unsqueeze(1) * inverse_frequencies(config)
    return torch.cat((angles.cos(), angles.sin()), dim=1).to(device)


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, weight.shape, weight.to(torch.float32), eps)


def _check_norm(x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.dim() not in (2, 3):
        raise ValueError(f"a norm needs rows, or rows of heads, not {_form(x)}")
    if weight.dtype != x.dtype or weight.shape != x.shape[-1:] or not weight.is_contiguous():
        raise ValueError(f"a norm of {_form(x)} does not go with a weight of {_form(weight)}")
    _check_last_dim("what is normed", x)


def _check_last_dim(name: str, x: torch.Tensor) -> None:
    if x.stride(-1) != 1:
        raise ValueError(f"{name} must lie contiguously in the last dimension, not {x.stride()}")


def _form(x: torch.Tensor) -> str:
    return f"{x.dtype} {list(x.shape)}"
