"""Kernels are refused by name where transformers computes the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from radix_engine.gpu.fit import GpuFacts
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import TransformersConfig
from server.model_choice import choose
from server.options import EngineOptions


@pytest.fixture(autouse=True)
def _gpt2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.model_choice.choose_forward", lambda _: "transformers")
    found = TransformersConfig("gpt2", 128, 64)
    monkeypatch.setattr("server.model_choice.read_transformers_config", lambda _: found)


@pytest.mark.parametrize("kernels", ["avx2", "avx512", "avx512_bf16", "amx"])
def test_kernels_of_the_processor_are_refused(tmp_path: Path, kernels: str) -> None:
    options = EngineOptions(kernels=kernels)
    with pytest.raises(ValueError, match=f"--kernels {kernels} is for models of .* type gpt2"):
        choose(ModelFolder(tmp_path, "tiny"), options, 2, GpuFacts())


@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_torch_computes_for_transformers(tmp_path: Path, kernels: str) -> None:
    options = EngineOptions(kernels=kernels, dtype="fp32")
    choice = choose(ModelFolder(tmp_path, "tiny"), options, 2, GpuFacts())
    assert choice.context_length == 128
