"""What the fake flashinfer refuses: calls that the real package crashes on or answers wrongly.

The real kernels check next to nothing, so a mistake there shows up as wrong tokens. Here it shows
up as `Rejected`, with what was wrong.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

HEAD_DIMS = (64, 128, 256)
# Append, merge and rotation are compiled for one more.
MORE_HEAD_DIMS = (*HEAD_DIMS, 512)
# The real kernels take the first two only; float32 is for exact tests on a CPU.
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
KV_FLOATS = (*FLOATS, torch.float8_e4m3fn, torch.float8_e5m2)


class Rejected(ValueError):
    """A call that must never reach the real package."""


def require(condition: bool, message: str) -> None:
    """Raise `Rejected` unless the condition holds."""
    if not condition:
        raise Rejected(message)


def check_index(name: str, array: Any, length: int | None = None) -> None:
    """Of an index array: one dimension, int32, contiguous, and ``length`` where that is given."""
    require(isinstance(array, torch.Tensor), f"{name} must be a tensor, not {type(array)}")
    require(array.dtype == torch.int32, f"{name} must be int32, not {array.dtype}")
    require(array.dim() == 1, f"{name} must have one dimension, not {array.dim()}")
    require(array.is_contiguous(), f"{name} must be contiguous")
    if length is not None:
        require(len(array) == length, f"{name} must have {length} entries, not {len(array)}")


def check_indptr(name: str, array: Any, covered: int | None = None) -> list[int]:
    """Offsets from 0 that never fall, of at least one request, up to ``covered`` where given."""
    check_index(name, array)
    offsets: list[int] = array.tolist()
    require(len(offsets) > 1, f"{name} names no request")
    require(offsets[0] == 0, f"{name} must begin with 0, not {offsets[0]}")
    falls = any(high < low for low, high in itertools.pairwise(offsets))
    require(not falls, f"{name} must never fall: {offsets}")
    if covered is not None:
        require(offsets[-1] == covered, f"{name} ends at {offsets[-1]} instead of {covered}")
    return offsets


def check_on_host(name: str, array: torch.Tensor) -> None:
    """Planning reads these on the host; one on a device would make the host wait for it."""
    require(array.device.type == "cpu", f"{name} must be on the CPU, not on {array.device}")


def float_type(name: str, value: Any, allowed: tuple[torch.dtype, ...]) -> torch.dtype:
    """The dtype that ``value``, a dtype or its name, stands for; None is refused."""
    require(value is not None, f"{name} must be given: its default is float16")
    dtype = getattr(torch, value, None) if isinstance(value, str) else value
    require(dtype in allowed, f"{name} cannot be {value}")
    assert isinstance(dtype, torch.dtype)
    return dtype


def check_vectors(name: str, tensor: torch.Tensor, dtype: torch.dtype, head_dim: int) -> None:
    """Of queries, keys or values: [tokens, heads, head_dim], each vector in one piece."""
    require(tensor.dim() == 3, f"{name} must have three dimensions, not {tensor.dim()}")
    require(tensor.dtype == dtype, f"{name} must be {dtype}, not {tensor.dtype}")
    require(tensor.shape[2] == head_dim, f"{name} has head_dim {tensor.shape[2]}, not {head_dim}")
    require(tensor.stride(2) == 1, f"{name} must be contiguous in its last dimension")


def check_head_dim(head_dim: int, known: tuple[int, ...] = HEAD_DIMS) -> None:
    """The kernels are compiled for few head dims and do not check it themselves."""
    require(head_dim in known, f"head_dim must be one of {known}, not {head_dim}")


def split_cache(cache: Any, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of a paged cache as views [pages, page_size, kv_heads, head_dim]."""
    require(layout in ("NHD", "HND"), f"no such layout: {layout}")
    if isinstance(cache, tuple):
        require(len(cache) == 2, "a cache in parts must be a pair of K and V")
        keys, values = cache
    else:
        require(cache.dim() == 5, f"a cache must have five dimensions, not {cache.dim()}")
        require(cache.shape[1] == 2, f"a cache's second dimension must be 2: {cache.shape}")
        keys, values = cache.unbind(1)
    require(keys.dim() == 4 and keys.shape == values.shape, "K and V must be alike, of four dims")
    require(keys.stride() == values.stride(), "K and V must have the same strides")
    require(keys.dtype == values.dtype, "K and V must be of one dtype")
    require(keys.stride(3) == 1, "a cache must be contiguous in its last dimension")
    if layout == "HND":
        return keys.transpose(1, 2), values.transpose(1, 2)
    return keys, values
