"""Before a runner is handed out all kernels have been used that its steps will ask for."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.gpu.served import Recording, gpu_model
from radix_engine.memory.fp8 import FP8
from radix_engine.model.batch import Span
from radix_engine.model.linear import Linear, TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.served import Runner
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel
from tests.gpu.binding import bound_fake
from tests.gpu.recording import Recorder
from tests.gpu.runners import all_logits, assert_near
from tests.model.helpers import random_tokens, tiny_runner
from tests.tiny import make_tiny_folder


class Modules:
    """A flashinfer that writes down which modules would be compiled: FlashInfer has others for
    prompts and single tokens, with and without a window, and to merge what a cascade has read."""

    def __init__(self) -> None:
        self.used: set[tuple[str, bool]] = set()
        self.fake = bound_fake()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.fake, name)
        if not name.endswith("Wrapper"):
            return found
        return lambda *given, **settings: _Noted(self, name, found(*given, **settings))


class _Noted:
    def __init__(self, modules: Modules, name: str, wrapper: Any) -> None:
        self._modules, self._name, self._wrapper = modules, name, wrapper

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapper, name)

    def plan(self, *given: Any, window_left: int = -1, **settings: Any) -> None:
        self._modules.used.add((self._name, window_left >= 0))
        self._wrapper.plan(*given, window_left=window_left, **settings)


WINDOWS: dict[str, dict[str, Any]] = {
    "none": {},
    "short": {"sliding_window": 40},
    "long": {"sliding_window": 300},
    "some": {"sliding_window": 40, "use_sliding_window": True, "max_window_layers": 1},
}


def model_of(path: Path, windows: str) -> LoadedModel[Linear]:
    family = "qwen3" if windows == "some" else "llama" if windows == "none" else "mistral"
    folder = make_tiny_folder(path, family, head_dim=64, **WINDOWS[windows])
    return load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32))


def any_steps(runner: Runner, seed: int) -> None:
    """Prompts and single tokens, of any context, alone and together, with and without a prefix."""
    draw = random.Random(seed)
    for _ in range(30):
        shared = draw.choice([0, 1, 17])
        table = list(range(30))
        spans = []
        for number in range(draw.randint(1, 3)):
            own = table[:shared] + list(range(30 + 30 * number, 60 + 30 * number - shared))
            count = draw.choice([1, 1, draw.randint(1, 20)])
            start = draw.randint(16 * shared, 16 * 30 - count)
            spans.append(Span([1] * count, start, own, draw.choice([0, 1])))
        if draw.random() < 0.5:
            spans = [span._replace(tokens=[1]) for span in spans]
        runner.forward(spans)


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("limit", [None, 2])
def test_no_step_asks_for_kernels_that_were_not_used_while_warming_up(
    tmp_path: Path, windows: str, limit: int | None
) -> None:
    modules = Modules()
    recording = None if limit is None else Recording(limit, lambda _: Recorder())
    model = model_of(tmp_path, windows)
    runner = gpu_model(model, modules, recording, warm=True).make_runner(150, 16)
    warmed = set(modules.used)
    for seed in range(4):
        any_steps(runner, seed)
    assert modules.used == warmed
    kinds = {name for name, _ in warmed}
    assert "BatchPrefillWithPagedKVCacheWrapper" in kinds
    # Where all layers have a short window nothing is read once for all.
    assert ("MultiLevelCascadeAttentionWrapper" in kinds) == (windows != "short")
    assert any(window for _, window in warmed) == (windows != "none")


def test_a_warm_runner_computes_what_another_computes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = tiny_runner(tmp_path, "mistral", head_dim=64, sliding_window=40)
    with caplog.at_level(logging.INFO):
        runner = gpu_model(plain.model, bound_fake(), warm=True).make_runner(64, 16)
    assert "FlashInfer may compile kernels now" in caplog.text
    assert runner.memory.num_blocks == 64
    tokens = random_tokens(100)
    assert_near(all_logits(runner, tokens), all_logits(plain, tokens))


@pytest.mark.parametrize("num_blocks", [1, 2, 17])
def test_a_small_memory_is_warmed_up_as_far_as_it_reaches(tmp_path: Path, num_blocks: int) -> None:
    model = model_of(tmp_path, "long")
    runner = gpu_model(model, bound_fake(), warm=True).make_runner(num_blocks, 16)
    assert runner.memory.num_blocks == num_blocks


def test_memory_in_fp8_is_warmed_up_in_fp8(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path, head_dim=64)
    model = load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float16))
    runner = gpu_model(model, bound_fake(), fp8=True, warm=True).make_runner(64, 16)
    assert all(layer.dtype == FP8 for layer in runner.memory.layers)  # type: ignore[attr-defined]
    assert all(layer[0].float().abs().sum() > 0 for layer in runner.memory.layers)  # type: ignore[attr-defined]


def test_without_being_asked_nothing_is_computed(tmp_path: Path) -> None:
    runner = gpu_model(model_of(tmp_path, "none"), bound_fake()).make_runner(4, 16)
    assert not any(layer.any() for layer in runner.memory.layers)  # type: ignore[attr-defined]
