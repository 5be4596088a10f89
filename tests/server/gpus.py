"""GPUs that tests suppose, and a model that FlashInfer would fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from radix_engine.gpu.fit import FLASHINFER, TVM_FFI, GpuFacts
from tests.tiny import make_tiny_folder

GIB = 2**30
NO_CUDA = GpuFacts()
H200 = GpuFacts(
    torch_cuda="13.0",
    driver_cuda=(13, 0),
    device="NVIDIA H200",
    index=2,
    capability=(9, 0),
    memory_total=2**37,
    memory_free=2**37,
    flashinfer=FLASHINFER,
    tvm_ffi=TVM_FFI,
    has_kernels=True,
)
T4 = replace(H200, device="Tesla T4", capability=(7, 5))


def memory_of(free: int, total: int) -> Any:
    return lambda device: (free, total)


def fitting_model(parent: Path) -> Path:
    """A folder with a tiny model whose heads FlashInfer's kernels know."""
    return make_tiny_folder(parent / "tiny64", tokenizer=True, head_dim=64)
