"""An engine over a tiny random model, shared by the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.cpu.build import build
from radix_engine.cpu.library import Kernels
from radix_engine.cpu.packing import CpuPacking
from radix_engine.cpu.processor import KernelKind, read_processor, usable_kinds
from radix_engine.cpu.served import cpu_model
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.served import ServedModel, torch_model
from radix_engine.model.source import ModelFolder
from scheduler import Limits
from server import Engine
from server.options import CacheOptions
from server.text import TextCodec
from tests.tiny import make_tiny_folder

MakeEngine = Callable[..., Engine]

KINDS = usable_kinds(read_processor())
"""The compiled kernels that run on this machine, fastest first."""


def served(folder: Path, kind: KernelKind | None) -> ServedModel:
    """The model in ``folder``: on compiled kernels in the type they compute in, or on torch."""
    model = ModelFolder(folder, "tiny")
    if kind is None:
        return torch_model(load_model(model, TorchPacking(torch.float32)))
    kernels = Kernels(build(kind), kind)
    name, dtype = ("bf16", torch.bfloat16) if kind.bf16 else ("fp32", torch.float32)
    return cpu_model(load_model(model, CpuPacking(kernels, name, dtype)), kernels, name, 2)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_folder(tmp_path_factory.mktemp("models") / "tiny", tokenizer=True)


@pytest.fixture
def make_engine(tiny_folder: Path) -> Iterator[MakeEngine]:
    """A factory; all engines it made are shut down, audited and found free of leaks at the end."""
    torch.set_num_threads(1)  # more cost more than they bring for a model this small
    engines: list[Engine] = []

    def make(
        num_blocks: int = 64,
        *,
        limits: Limits | None = None,
        prefix_cache: bool = True,
        folder: Path = tiny_folder,
        order: str = "lpm",
        block_size: int = 16,
        kind: KernelKind | None = None,
        **options: Any,
    ) -> Engine:
        model = torch_model(load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32)))
        engine = Engine(
            model,
            TextCodec(folder),
            num_blocks,
            block_size=block_size,
            limits=limits,
            cache=CacheOptions(enabled=prefix_cache, **options),
            order=order,
        )
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        if engine.is_alive():
            assert engine.audit() == []
        engine.shutdown(grace_s=0.0)
        state = engine.state()
        assert state["blocks_private"] == 0
        assert state["blocks_cached"] == state["blocks_evictable"]
        assert state["running"] == state["waiting"] == 0
