"""An engine over a tiny random model, shared by the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.served import torch_model
from radix_engine.model.source import ModelFolder
from scheduler import Limits
from server import Engine
from server.options import CacheOptions
from server.text import TextCodec
from tests.tiny import make_tiny_folder

MakeEngine = Callable[..., Engine]


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
