"""An engine whose model is divided among processes: as one process, or gone for good."""

from __future__ import annotations

import logging
import os
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from fastapi.testclient import TestClient

from radix_engine.gpu.fit import GpuFacts
from radix_engine.gpu.sizing import step_bytes, weight_bytes
from radix_engine.model.batch import Span
from radix_engine.model.config import read_config
from radix_engine.model.errors import ModelError
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import TransformersConfig
from radix_engine.parallel.errors import ParallelError
from radix_engine.parallel.group import Group
from radix_engine.parallel.shard import local_config
from server import Completion, Engine, EngineOptions, Output, RequestRefused
from server.command_line import parse
from server.gpu_choice import GpuWay
from server.http.app import create_app
from server.loading import load_parts
from server.model_choice import choose, with_gpu
from server.out_of_memory import is_out_of_memory
from server.parallel_choice import GroupProcesses, in_one_line, load_divided, refuse_for_several
from server.text import TextCodec
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids
from tests.server.test_gpu_choice import GIB, H200, memory_of
from tests.tiny import make_tiny_folder

PROMPTS = [ids(40, 1), ids(40, 1)[:33] + ids(10, 2), ids(7, 3)]
TIMEOUT_S = 20


def options(**fields: Any) -> EngineOptions:
    usual: dict[str, Any] = {"dtype": "fp32", "threads": 2, "tensor_parallel": 2}
    return EngineOptions(**(usual | fields))


def pids_of(engine: Engine) -> list[int]:
    assert isinstance(engine._processes, GroupProcesses)
    return list(engine._processes.group.pids)


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@contextmanager
def threads_kept() -> Iterator[None]:
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def in_a_group_of_one(folder: Path) -> Iterator[Engine]:
    """An engine over a group without other processes: quick to start, and ends like any other."""
    model = load_divided(ModelFolder(folder, "tiny"), torch.float32, 1, None)
    with Engine(model, TextCodec(folder), 64) as engine:
        yield engine
    assert not dist.is_initialized()


def tokens_of(answers: list[Completion]) -> list[tuple[int, ...]]:
    return [answer.token_ids for answer in answers]


def test_two_processes_answer_as_one_until_one_of_them_is_lost(
    tiny_folder: Path, make_engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_engine()
    cold, warm = (one.generate(PROMPTS, greedy()) for _ in range(2))
    caplog.set_level(logging.INFO)
    with threads_kept(), Engine.load(options(model=str(tiny_folder), kv_memory="4MiB")) as engine:
        assert "slower than one process with the compiled kernels" in caplog.text
        assert torch.get_num_threads() == 1
        for expected in (cold, warm):
            answers = engine.generate(PROMPTS, greedy())
            assert tokens_of(answers) == tokens_of(expected)
            assert [a.usage for a in answers] == [e.usage for e in expected]
        info = engine.info
        assert (info.kernels, info.exact, info.weights) == ("torch", False, "fp32")
        # K and V of 2 heads of 16, in 2 layers, 4 bytes each; of both processes together.
        assert info.kv_bytes_per_token == 2 * 2 * 16 * 2 * 4
        assert info.num_blocks == 4 * 2**20 // (512 * 16)
        assert engine._loop._steps._following is None, "no look-ahead"

        client = TestClient(create_app(engine))
        assert client.get("/health").status_code == 200
        outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
        for seed in (4, 5):
            engine.submit(ids(20, seed), greedy(900), outputs.put)
        outputs.get(timeout=TIMEOUT_S)
        (pid,) = pids_of(engine)
        os.kill(pid, signal.SIGKILL)
        ends: list[Output] = []
        while len(ends) < 2:
            output = outputs.get(timeout=TIMEOUT_S)
            ends += [output] if output.finish_reason is not None else []
        for end in ends:
            assert end.finish_reason == "error"
            assert f"rank 1 (process {pid}) was ended by SIGKILL" in (end.error or "")
        assert not engine.is_alive()
        assert client.get("/health").json() == {"status": "engine_stopped"}
        engine._loop._thread.join(TIMEOUT_S)
        with pytest.raises(RequestRefused, match="the engine has failed"):
            engine.submit(ids(20, 1), greedy(), outputs.put)
        state = engine.state()
        assert state["blocks_private"] == state["running"] == state["waiting"] == 0
        assert engine._scheduler.audit() == []
    assert are_gone([pid])
    assert not dist.is_initialized()


def test_shutdown_leaves_no_process(tiny_folder: Path) -> None:
    with threads_kept():
        engine = Engine.load(options(model=str(tiny_folder), kv_memory="1MiB"))
    pids = pids_of(engine)
    assert len(pids) == 1
    assert not are_gone(pids)
    outputs: list[Output] = []
    engine.submit(ids(20, 1), greedy(900), outputs.append)
    engine.shutdown(0.0)
    assert outputs[-1].finish_reason == "abort"
    assert are_gone(pids)
    assert not engine.is_alive()
    engine.shutdown(0.0)


# What ends an engine for good; without other processes.


@pytest.mark.parametrize("part", ["forward", "copy_rows"])
def test_memory_that_runs_out_in_a_divided_step_is_final(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    tried: list[object] = []

    def fail(what: object) -> None:
        tried.append(what)
        raise torch.OutOfMemoryError("CUDA out of memory")

    with in_a_group_of_one(tiny_folder) as engine:
        engine.generate([ids(40, 1)], greedy(2))
        monkeypatch.setattr(engine._loop._steps._model._runner._local, part, fail)  # type: ignore[attr-defined]
        # The first prompt's second block is matched in part, so rows of it are copied.
        answers = engine.generate([ids(40, 1)[:20] + ids(9, 3)], greedy())
        assert [answer.finish_reason for answer in answers] == ["error"]
        assert answers[0].error is not None
        assert "rank 0: OutOfMemoryError: CUDA out of memory" in answers[0].error
        assert len(tried) == 1
        engine._loop._thread.join(TIMEOUT_S)
        assert not engine._loop.is_alive()


def test_what_runs_out_of_memory_beside_the_model_may_be_tried_again(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from server.choosing import choose as choose_all

    def choose_few(rows: Any, *rest: Any) -> Any:
        if len(rows) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return choose_all(rows, *rest)

    with in_a_group_of_one(tiny_folder) as engine:
        expected = tokens_of(engine.generate(PROMPTS, greedy()))
        monkeypatch.setattr("server.steps.choose", choose_few)
        assert tokens_of(engine.generate(PROMPTS, greedy())) == expected
        assert engine.is_alive()


def test_spans_that_cannot_be_run_leave_the_group_as_it_is(tiny_folder: Path) -> None:
    with in_a_group_of_one(tiny_folder) as engine:
        model = engine._loop._steps._model
        with pytest.raises(ValueError, match="block table names 1"):
            model.forward([Span([1] * 17, 0, [0], 1)])
        assert engine.is_alive()


def test_a_process_that_is_lost_while_nothing_runs_shows_at_once(
    tiny_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with in_a_group_of_one(tiny_folder) as engine:
        assert engine.is_alive()
        assert isinstance(engine._processes, GroupProcesses)
        engine._processes.group._fail("rank 1 is gone")
        assert not engine.is_alive()
        assert not engine.is_alive()
        assert caplog.text.count("rank 1 is gone") == 1
        answer = engine.generate([ids(20, 1)], greedy())[0]
        assert answer.finish_reason == "error"
        assert "rank 1 is gone" in (answer.error or "")
        engine._loop._thread.join(TIMEOUT_S)
        assert not engine._loop.is_alive()


def test_a_lost_rank_is_no_want_of_memory_whatever_it_died_of() -> None:
    assert not is_out_of_memory(ParallelError("rank 1 failed: CUDA out of memory"))


def test_another_ranks_traceback_becomes_its_last_error() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
        "KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 2, in f\n    h()\n'
        "torch.OutOfMemoryError: CUDA out of memory.\nCompile with TORCH_USE_CUDA_DSA\n"
    )
    assert in_one_line(ParallelError(f"ended: rank 1 (process 7) failed:\n{trace}")) == (
        "ended: rank 1 (process 7) failed: torch.OutOfMemoryError: CUDA out of memory."
    )
    assert in_one_line(ParallelError("a step did\nnot end")) == "a step did not end"


# What cannot be


def test_the_number_of_processes_is_an_option() -> None:
    assert parse([]).engine.tensor_parallel == 1
    assert parse(["--tensor-parallel", "4"]).engine.tensor_parallel == 4
    for size in (0, 3, 16):
        with pytest.raises(ValueError, match=rf"tensor_parallel .* 1, 2, 4, 8, not {size}"):
            EngineOptions(tensor_parallel=size)


def test_a_number_that_does_not_divide_the_heads_is_refused_by_name(tmp_path: Path) -> None:
    folder = make_tiny_folder(
        tmp_path, tokenizer=True, num_attention_heads=3, num_key_value_heads=3
    )
    with (
        threads_kept(),
        pytest.raises(ModelError, match=r"num_key_value_heads 3 cannot .* 2 processes; .*: 1$"),
    ):
        load_parts(options(model=str(folder)))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"exact": True}, "--exact"),
        ({"quantization": "int4"}, "--quantization int4"),
        ({"kv_dtype": "int8"}, "--kv-dtype int8"),
        ({"kernels": "avx2"}, "--kernels avx2"),
    ],
)
def test_what_needs_the_compiled_kernels_is_refused_by_name(
    fields: dict[str, Any], name: str
) -> None:
    refuse_for_several(options(tensor_parallel=1, **fields))
    with pytest.raises(ValueError, match=rf"^{name} needs .*--tensor-parallel 2"):
        load_parts(options(model="nowhere", **fields))


def test_k_and_v_in_another_type_than_the_weights_are_refused(tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"--kv-dtype bf16 needs .*--tensor-parallel 2"):
        choose(ModelFolder(tiny_folder, "tiny"), options(kv_dtype="bf16"), 2, GpuFacts())


def test_a_model_for_transformers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.model_choice.choose_forward", lambda _: "transformers")
    found = TransformersConfig("gpt2", 128, 64)
    monkeypatch.setattr("server.model_choice.read_transformers_config", lambda _: found)
    with pytest.raises(ValueError, match="--tensor-parallel 2 is for models of the Llama family"):
        choose(ModelFolder(tmp_path, "tiny"), options(), 2, GpuFacts())


def test_each_process_needs_a_gpu_where_there_are_any(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, wanted = ModelFolder(tiny_folder, "tiny"), options(tensor_parallel=2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"--tensor-parallel 2 needs 2 GPUs, .* sees 1"):
        choose(model, wanted, 2, H200)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    # K and V of one of 2 heads of 16, in 2 layers, of a block, on each GPU.
    assert choose(model, wanted, 2, H200).kv_bytes_per_block == 2 * 1 * 16 * 2 * 4 * 16


def test_flashinfer_must_fit_the_part_of_each_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny_folder(tmp_path, head_dim=64, intermediate_size=24)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    wanted = options(dtype="bf16", attention="flashinfer")
    with pytest.raises(ValueError, match="multiple of 8, and this one is 12"):
        choose(ModelFolder(folder, "tiny"), wanted, 2, H200)


def test_memory_is_that_of_each_gpu(tiny_folder: Path) -> None:
    config = read_config(tiny_folder)
    part = local_config(config, 2)
    way = GpuWay(torch.device("cpu"), torch.float32, True, "")
    choice = with_gpu(
        ModelFolder(tiny_folder, "tiny"), config, options(), way, memory_of(8 * GIB, 8 * GIB)
    )
    reserve = step_bytes(part, torch.float32, 2048, 64, flashinfer=True)
    room = int(8 * GIB * 0.9) - reserve
    assert choice.kv_memory(True) == room
    assert choice.kv_memory(False) == room - weight_bytes(part, torch.float32)


# What was begun is ended


@pytest.mark.parametrize("step", ["load", "size", "make"])
def test_what_fails_on_the_way_to_an_engine_ends_the_group(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    groups: list[Group] = []

    class Counted(Group):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            groups.append(self)

    def fail(*_: Any, **__: Any) -> Any:
        raise ParallelError("lost\non the way")

    def divided(*arguments: Any) -> Any:
        choice = choose(*arguments)
        assert choice.kv_memory(False) > 0

        def kv_memory(loaded: bool) -> int:
            return fail() if loaded and step == "size" else 2**20

        def load(progress: Any) -> Any:
            folder = ModelFolder(tiny_folder, "tiny")
            model = load_divided(folder, torch.float32, 1, None, progress)
            assert dist.is_initialized()
            return model

        return replace(choice, kv_memory=kv_memory, load=load)

    monkeypatch.setattr("server.parallel_choice.Group", Counted)
    monkeypatch.setattr("server.loading.choose", divided)
    if step == "load":
        monkeypatch.setattr("server.parallel_choice.load_parallel", fail)
    if step == "make":
        monkeypatch.setattr("server.parallel_choice.GroupRunner", fail)
    error = ParallelError if step == "size" else ModelError
    with threads_kept(), pytest.raises(error, match=r"lost\son the way"):
        Engine.load(options(model=str(tiny_folder), kernels="torch"))
    assert len(groups) == 1
    assert not dist.is_initialized()
