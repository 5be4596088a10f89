"""An engine over a model on a GPU, where the GPU is a processor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.gpu.sizing import weight_bytes
from radix_engine.model.config import ModelConfig, read_config
from radix_engine.model.source import ModelFolder
from scheduler import Limits
from server import Engine, EngineOptions
from server.gpu_choice import GpuWay
from server.model_choice import with_gpu
from server.text import TextCodec
from tests.gpu.binding import bound_fake
from tests.gpu.fake_flashinfer import FakeFlashInfer
from tests.server.conftest import MakeEngine
from tests.server.gpus import GIB, fitting_model, memory_of
from tests.server.prompts import greedy, ids

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitting_model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def config(folder: Path) -> ModelConfig:
    return read_config(folder)


def on_cpu(flashinfer: bool) -> GpuWay:
    return GpuWay(CPU, torch.float32, flashinfer, "")


def test_weights_that_are_yet_to_be_loaded_leave_less_for_k_and_v(
    folder: Path, config: ModelConfig
) -> None:
    choice = with_gpu(
        ModelFolder(folder, "tiny"),
        config,
        EngineOptions(),
        on_cpu(flashinfer=True),
        memory_of(2 * GIB, 3 * GIB),
    )
    loaded, before = choice.kv_memory(True), choice.kv_memory(False)
    assert loaded - before == weight_bytes(config, torch.float32)
    assert choice.kv_bytes_per_block == 16 * 2 * 2 * 2 * 64 * 4


def test_the_steps_limits_decide_what_is_kept_for_a_step(folder: Path, config: ModelConfig) -> None:
    def room(limits: Limits) -> int:
        wanted = EngineOptions(limits=limits, gpu_memory_utilization=0.5)
        read = memory_of(8 * GIB, 8 * GIB)
        model = ModelFolder(folder, "tiny")
        return with_gpu(model, config, wanted, on_cpu(flashinfer=True), read).kv_memory(True)

    assert room(Limits()) == room(Limits(max_step_tokens=2048))
    rows = 4 * (3 * 64 + 4 * 4 * 64 + 3 * 2 * 64)  # residual, norm, output; queries; keys
    assert room(Limits(1048)) - room(Limits(2048)) == 1000 * rows
    assert room(Limits(max_running=64)) - room(Limits(max_running=65)) == 512 * 64


def answers_on(folder: Path, way: GpuWay) -> tuple[list[tuple[int, ...]], Engine]:
    config = read_config(folder)
    choice = with_gpu(ModelFolder(folder, "tiny"), config, EngineOptions(), way)
    with Engine(choice.load(None), TextCodec(folder), 64) as engine:
        prompts = [ids(40, 1), ids(40, 1)[:33] + ids(10, 2), ids(7, 3)]
        answers = engine.generate(prompts, greedy(6))
        answers += engine.generate(prompts, greedy(6))
        return [answer.token_ids for answer in answers], engine


def test_an_engine_on_a_gpu_answers_as_one_on_torch(folder: Path, make_engine: MakeEngine) -> None:
    prompts = [ids(40, 1), ids(40, 1)[:33] + ids(10, 2), ids(7, 3)]
    expected = [
        answer.token_ids for answer in make_engine(folder=folder).generate(prompts, greedy(6))
    ]
    found, engine = answers_on(folder, on_cpu(flashinfer=False))
    assert found == expected * 2
    assert (engine.info.kernels, engine.info.exact) == ("torch-cuda", False)
    assert engine.info.limits.max_step_tokens == 2048


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is imported as flashinfer."""
    fake = bound_fake()
    monkeypatch.setenv("FLASHINFER_USE_CUDA_NORM", "1")  # put back afterwards
    monkeypatch.setitem(sys.modules, "flashinfer", fake)
    return fake


def test_an_engine_with_flashinfer_answers_as_one_on_torch(
    folder: Path, make_engine: MakeEngine, flashinfer: FakeFlashInfer
) -> None:
    prompts = [ids(40, 1), ids(40, 1)[:33] + ids(10, 2), ids(7, 3)]
    expected = [
        answer.token_ids for answer in make_engine(folder=folder).generate(prompts, greedy(6))
    ]
    found, engine = answers_on(folder, on_cpu(flashinfer=True))
    assert found == expected * 2
    assert (engine.info.kernels, engine.info.weights) == ("flashinfer", "fp32")
    assert flashinfer.calls["append_paged_kv_cache"] > 0
    assert flashinfer.calls["fused_add_rmsnorm"] > 0


def test_k_and_v_that_cannot_be_allocated_are_told(
    folder: Path, config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    model = with_gpu(ModelFolder(folder, "tiny"), config, EngineOptions(), on_cpu(False)).load(None)
    monkeypatch.setattr("radix_engine.gpu.served.KVMemory", none_left)
    with pytest.raises(ValueError, match=r"KV memory of 64\.0 KiB .*--gpu-memory-utilization"):
        model.make_runner(2, 16)
