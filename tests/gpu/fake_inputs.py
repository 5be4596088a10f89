"""Small inputs for the tests of the fake flashinfer, and the real package's references."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from tests.gpu.binding import real_flashinfer

PAGE = 4
HEADS, KV_HEADS, DIM = 4, 2, 64
F16 = torch.float16


def reference(template: str, name: str) -> Any:
    """One of the real package's references, in plain torch."""
    real_flashinfer()
    return getattr(importlib.import_module(f"flashinfer.trace.templates.{template}"), name)


def ints(*values: int) -> torch.Tensor:
    """An index array."""
    return torch.tensor(values, dtype=torch.int32)


def workspace() -> torch.Tensor:
    """For wrappers; the fake writes nothing there."""
    return torch.empty(8, dtype=torch.uint8)


def cache(**changes: Any) -> torch.Tensor:
    """Pages of zeros, float16."""
    shape = {"pages": 6, "two": 2, "page": PAGE, "heads": KV_HEADS, "dim": DIM} | changes
    dtype = shape.pop("dtype", F16)
    return torch.zeros(tuple(shape.values()), dtype=dtype)


def queries(tokens: int, heads: int = HEADS, dim: int = DIM, dtype: Any = F16) -> torch.Tensor:
    """Zeros, float16; with ``heads=KV_HEADS`` keys or values."""
    return torch.zeros(tokens, heads, dim, dtype=dtype)
