"""A served model on a GPU: its runners, with and without graphs, under an engine that looks ahead.

All on a CPU, with stand-ins for FlashInfer and for CUDA's graphs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.gpu.graphs import CaptureProgress, GraphRunner
from radix_engine.gpu.runner import GpuRunner, move_tokens
from radix_engine.gpu.served import Recording, gpu_model
from radix_engine.gpu.sizing import WORKSPACE_BYTES, graph_bytes
from radix_engine.model.batch import Span
from radix_engine.model.config import read_config
from radix_engine.model.linear import Linear, TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.served import ServedModel, torch_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel
from scheduler import Limits
from server import Engine, EngineOptions
from server.gpu_choice import GpuWay
from server.model_choice import with_gpu
from server.text import TextCodec
from tests.gpu.binding import bound_fake
from tests.gpu.recording import Recorder, Repeat
from tests.gpu.runners import all_logits, assert_near
from tests.model.helpers import random_tokens
from tests.server.test_look_ahead import answers, mixed
from tests.tiny import make_tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with heads that FlashInfer's kernels know, some layers with a window."""
    path = tmp_path_factory.mktemp("models") / "tiny64"
    fields = {"use_sliding_window": True, "sliding_window": 21, "max_window_layers": 1}
    return make_tiny_folder(path, "qwen3", tokenizer=True, head_dim=64, **fields)


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel[Linear]:
    return load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32))


@dataclass
class Watched:
    """Who records, and what is shown of it."""

    recorder: Recorder = field(default_factory=Recorder)
    devices: list[torch.device] = field(default_factory=list)
    shown: list[tuple[int, int] | str] = field(default_factory=list)

    def recording(self, limit: int) -> Recording:
        return Recording(limit, self.make, self.show)

    def make(self, device: torch.device) -> Recorder:
        self.devices.append(device)
        return self.recorder

    @contextmanager
    def show(self) -> Iterator[CaptureProgress]:
        yield lambda done, total: self.shown.append((done, total))
        self.shown.append("ended")


def test_a_runner_that_records_keeps_a_block_to_itself(
    model: LoadedModel[Linear], caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched()
    # what the stand-in for graphs says that each takes, in bytes
    watched.recorder.free_bytes = lambda: 2**30 - 3 * 2**20 * len(watched.recorder.graphs)  # type: ignore[method-assign]
    served = gpu_model(model, bound_fake(), watched.recording(8))
    with caplog.at_level(logging.INFO):
        runner = served.make_runner(20, 16)
    assert isinstance(runner, GraphRunner)
    assert (runner.memory.num_blocks, runner.memory.block_size) == (20, 16)
    assert runner.memory.bytes_per_block == 2 * 2 * 16 * 2 * 64 * 4
    assert list(watched.recorder.graphs) == [8, 4, 2, 1]
    assert watched.devices == [torch.device("cpu")]
    assert watched.shown == [(1, 4), (2, 4), (3, 4), (4, 4), "ended"]
    [line] = caplog.messages
    assert line == "Recorded steps of up to 8 sequences as CUDA graphs, which took 12 MiB"
    with pytest.raises(ValueError, match="outside 0 to 19"):
        runner.forward([Span([1, 2], 0, [20], 1)])
    tokens = random_tokens(50)
    expected = all_logits(torch_model(model).make_runner(64, 16), tokens)
    runner.forward([Span(tokens[:49], 0, [0, 7, 19, 4], 0)])
    assert_near(runner.forward([Span(tokens[49:], 49, [0, 7, 19, 4], 1)]), expected[49:])
    assert watched.recorder.replays == {1: 1}


class Noted:
    """A flashinfer of which is known where each of its wrappers computes."""

    def __init__(self) -> None:
        self.workspaces: list[torch.Tensor] = []
        self.fake = bound_fake()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.fake, name)
        if not name.endswith("Wrapper"):
            return found

        def make(*given: Any, **settings: Any) -> Any:
            self.workspaces += [each for each in given[:2] if isinstance(each, torch.Tensor)][:1]
            return found(*given, **settings)

        return make


def test_recorded_steps_and_others_compute_in_one_workspace(model: LoadedModel[Linear]) -> None:
    """What one step leaves there is nothing to the next."""
    noted, watched = Noted(), Watched()
    runner = gpu_model(model, noted, watched.recording(2)).make_runner(40, 16)
    plain = torch_model(model).make_runner(40, 16)
    tokens = random_tokens(60)
    steps = [Span(tokens[:40], 0, [0, 7, 19, 4], 1)]
    steps += [Span(tokens[n : n + 1], n, [0, 7, 19, 4], 1) for n in range(40, 50)]
    steps += [Span(tokens[50:], 50, [0, 7, 19, 4], 1)]
    for span in steps:
        assert_near(runner.forward([span]), plain.forward([span]))
        noted.workspaces[0].fill_(255)
    assert watched.recorder.replays == {1: 10}
    windows, sizes = 2, 2
    assert len(noted.workspaces) > windows * sizes, "others, too"
    assert {each.data_ptr() for each in noted.workspaces} == {noted.workspaces[0].data_ptr()}
    assert len(noted.workspaces[0]) == WORKSPACE_BYTES


def test_torchs_attention_is_not_recorded(model: LoadedModel[Linear]) -> None:
    watched = Watched()
    for served in (gpu_model(model, None, watched.recording(8)), gpu_model(model, bound_fake())):
        runner = served.make_runner(20, 16)
        assert type(runner) is GpuRunner
        assert runner.memory.num_blocks == 20
    assert not watched.recorder.graphs


def test_only_a_gpu_is_looked_ahead_of(model: LoadedModel[Linear]) -> None:
    assert not gpu_model(model, bound_fake()).look_ahead
    assert gpu_model(replace(model, device=torch.device("cuda")), None).look_ahead


class NoRoom(Recorder):
    def record(self, body: Callable[[], torch.Tensor]) -> tuple[Repeat, torch.Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_graphs_that_do_not_fit_are_told(model: LoadedModel[Linear]) -> None:
    served = gpu_model(model, bound_fake(), Watched(NoRoom()).recording(8))
    with pytest.raises(ValueError, match="start with a smaller --gpu-memory-utilization"):
        served.make_runner(20, 16)


GIB = 2**30


def test_room_for_graphs_is_kept_where_there_are_some(folder: Path) -> None:
    config = read_config(folder)

    def room(device: str, running: int, flashinfer: bool = True) -> int:
        options = EngineOptions(limits=Limits(2048, running))
        way = GpuWay(torch.device(device), torch.bfloat16, flashinfer, "")
        choice = with_gpu(
            ModelFolder(folder, "tiny"), config, options, way, lambda _: (32 * GIB, 64 * GIB)
        )
        return choice.kv_memory(True)

    for running, limit in ((1, 8), (64, 64), (60, 64), (300, 256)):
        kept = graph_bytes(config, torch.bfloat16, limit, 16)
        assert room("cpu", running) - room("cuda", running) == kept
    assert room("cpu", 64, flashinfer=False) == room("cuda", 64, flashinfer=False)


@pytest.mark.parametrize(
    ("device", "flashinfer", "limit"),
    [("cuda", True, 64), ("cuda", False, None), ("cpu", True, None)],
)
def test_steps_are_recorded_and_kernels_warm_where_flashinfer_computes_on_a_gpu(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    flashinfer: bool,
    limit: int | None,
) -> None:
    asked: list[tuple[Recording | None, bool]] = []

    def served(
        _: object, __: object, recording: Recording | None, fp8: bool, *, warm: bool
    ) -> None:
        asked.append((recording, warm))

    monkeypatch.setattr("server.model_choice.load_flashinfer", bound_fake)
    monkeypatch.setattr("server.model_choice.load_model", lambda *_: None)
    monkeypatch.setattr("server.model_choice.gpu_model", served)
    way = GpuWay(torch.device(device), torch.bfloat16, flashinfer, "")
    options = EngineOptions(limits=Limits(2048, 60))
    with_gpu(ModelFolder(folder, "tiny"), read_config(folder), options, way).load(None)
    assert asked == [(None, False) if limit is None else (Recording(limit), True)]


MakeEngine = Callable[[ServedModel, int, Limits | None], Engine]


@pytest.fixture
def engine_over(folder: Path) -> Iterator[MakeEngine]:
    """Engines, which are audited and found free of leaks at the end."""
    engines: list[Engine] = []

    def make(served: ServedModel, num_blocks: int, limits: Limits | None) -> Engine:
        served = replace(served, eos_token_ids=frozenset())
        engines.append(Engine(served, TextCodec(folder), num_blocks, limits=limits))
        return engines[-1]

    yield make
    for engine in engines:
        engine.flush_cache()
        assert engine.audit() == []
        engine.shutdown(0.0)


@pytest.mark.parametrize("num_blocks", [9, 64])
@pytest.mark.parametrize("recorded", [False, True])
def test_an_engine_that_looks_ahead_answers_as_one_on_torch_that_waits(
    model: LoadedModel[Linear], engine_over: MakeEngine, recorded: bool, num_blocks: int
) -> None:
    """Answers of many lengths, so the batch changes; some can be drawn ahead, others not."""
    limits = Limits(max_step_tokens=24, max_running=6)
    fake, watched = bound_fake(), Watched()
    served = gpu_model(model, fake, watched.recording(4) if recorded else None)
    engine = engine_over(replace(served, look_ahead=True), num_blocks, limits)
    expected = answers(engine_over(torch_model(model), num_blocks, limits), mixed())
    assert answers(engine, mixed()) == expected
    assert bool(watched.recorder.replays) == recorded
    # Mixed steps are computed without graphs.
    assert fake.calls["BatchPrefillWithPagedKVCacheWrapper.run"] > 0


@pytest.mark.parametrize("recorded", [False, True])
def test_steps_take_the_tokens_of_those_before_from_the_device(
    model: LoadedModel[Linear],
    engine_over: MakeEngine,
    recorded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []

    def counted(
        tokens: torch.Tensor, sampled: torch.Tensor, places: torch.Tensor, rows: torch.Tensor
    ) -> None:
        taken.append(len(places))
        move_tokens(tokens, sampled, places, rows)

    module = "graphs" if recorded else "runner"
    monkeypatch.setattr(f"radix_engine.gpu.{module}.move_tokens", counted)
    served = gpu_model(model, bound_fake(), Watched().recording(8) if recorded else None)
    engine = engine_over(replace(served, look_ahead=True), 64, None)
    plain = mixed()[:6]
    expected = answers(engine_over(torch_model(model), 64, None), plain)
    assert answers(engine, plain) == expected
    assert len(taken) > 5
    assert max(taken) > 1
