"""Matrix products with fixed weights.

On a CPU oneDNN multiplies by a weight that was laid out for it beforehand 1.3 to 2.5 times as fast
as by a plain one. Where it cannot (no oneDNN, another device, bf16 on a processor without the
instructions for it) the plain product is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from radix_engine.model.weights import MatrixSource, Role, TiedMatrix

# The layout depends a little on the expected number of rows. Laid out for one row it is half as
# fast for eight; laid out for 8 to 256 it is as fast for one row as for many.
_PACK_ROWS = 32

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Linear:
    """x -> x W^T + b for a weight [outputs, inputs] that is kept once, packed where that helps."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    packed: bool

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, inputs] -> [rows, outputs], both in the weight's dtype."""
        if self.packed:
            product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self.weight, self.bias, "none", [], ""
            )
            return product
        return F.linear(x, self.weight, self.bias)


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """A product with ``weight`` [outputs, inputs]; drop your own reference to it afterwards."""
    if can_pack(weight.dtype, weight.device):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS)
        return Linear(packed, bias, packed=True)
    return Linear(weight, bias, packed=False)


@dataclass(frozen=True, slots=True)
class TorchPacking:
    """Matrices as `Linear` products in ``dtype`` on ``device``: what `ModelRunner` runs on."""

    dtype: torch.dtype
    device: torch.device = _CPU

    def pack(self, role: Role, parts: Sequence[MatrixSource], bias: torch.Tensor | None) -> Linear:
        """One product in place of several that share their input. See `Packing`."""
        del role
        if bias is not None:
            bias = bias.to(device=self.device, dtype=self.dtype)
        return make_linear(self._joined(parts), bias)

    def _joined(self, parts: Sequence[MatrixSource]) -> torch.Tensor:
        """All parts' rows as one matrix that may be kept, or that packing copies from."""
        if len(parts) == 1 and (isinstance(parts[0], TiedMatrix) or self._packs()):
            return parts[0].dense(self.dtype).to(self.device)
        rows = [part.shape[0] for part in parts]
        joined = torch.empty(sum(rows), parts[0].shape[1], dtype=self.dtype, device=self.device)
        for part, target in zip(parts, torch.split(joined, rows), strict=True):
            target.copy_(part.dense(self.dtype))
        return joined

    def _packs(self) -> bool:
        return can_pack(self.dtype, self.device)


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether oneDNN takes packed weights of this dtype here."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def pick_dtype(name: str) -> torch.dtype:
    """The dtype behind ``auto``, ``fp32`` or ``bf16``; ValueError for another name.

    ``auto`` is bf16 where the processor multiplies in it (AVX512_BF16 or AMX), else fp32.
    """
    if name == "fp32":
        return torch.float32
    if name == "bf16":
        return torch.bfloat16
    if name == "auto":
        return torch.bfloat16 if _multiplies_bf16() else torch.float32
    raise ValueError(f"dtype must be auto, fp32 or bf16, not {name!r}")


def _multiplies_bf16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
