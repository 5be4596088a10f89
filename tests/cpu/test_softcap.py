"""A soft cap on attention scores, as the reference in torch applies it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.attention.torch_paged import TorchPlan
from radix_engine.cpu.library import Kernels
from radix_engine.model.batch import Span
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.source import ModelFolder
from tests.cpu.running import runner_of, tiny_folder
from tests.model.helpers import random_tokens

CAP = 0.5


def test_a_soft_cap_bends_scores_as_in_torch(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder(tmp_path, scale=0.5)  # scores well beyond the cap
    span = Span(random_tokens(300), 0, list(range(20)), 300)
    uncapped = runner_of(kernels, folder).forward([span])
    make = kernels.engine_new

    def with_cap(model: Any, threads: int) -> Any:
        model._obj.softcap = CAP
        return make(model, threads)

    monkeypatch.setattr(kernels, "engine_new", with_cap)
    capped = runner_of(kernels, folder).forward([span])
    reference = ModelRunner(
        load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32)), 64
    )
    attend = functools.partialmethod(TorchPlan.attend, softcap=CAP)
    monkeypatch.setattr(TorchPlan, "attend", attend)
    expected = reference.forward([span])
    scale = float(expected.abs().max())
    assert float((capped - expected).abs().max()) < 1e-4 * scale
    assert float((capped - uncapped).abs().max()) > 0.01 * scale
