"""Tiny models on the compiled kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from radix_engine.cpu.library import Kernels
from radix_engine.cpu.packing import CpuPacking
from radix_engine.cpu.runner import CpuRunner
from radix_engine.model.load import load_model
from radix_engine.model.source import ModelFolder
from tests.tiny import make_tiny_folder

# A multiple of 32, so that every format holds it.
INNER = 128


def tiny_folder(path: Path, model_type: str = "llama", **overrides: Any) -> Path:
    return make_tiny_folder(
        path / "model", model_type, **({"intermediate_size": INNER} | overrides)
    )


def runner_of(
    kernels: Kernels,
    folder: Path,
    format: str = "fp32",
    kv_type: str = "fp32",
    *,
    num_blocks: int = 64,
    threads: int = 1,
) -> CpuRunner:
    dtype = torch.float32 if format == "fp32" else torch.bfloat16
    model = load_model(ModelFolder(folder, "tiny"), CpuPacking(kernels, format, dtype))
    return CpuRunner(model, kernels, num_blocks, kv_type=kv_type, threads=threads, adaptive=False)
