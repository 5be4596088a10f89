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

from radix_engine.model.batch import Span
from radix_engine.model.errors import ModelError
from radix_engine.model.source import ModelFolder
from radix_engine.parallel.errors import ParallelError
from radix_engine.parallel.group import Group
from server import Completion, Engine, Output, RequestRefused
from server.http.app import create_app
from server.model_choice import choose
from server.out_of_memory import is_out_of_memory
from server.parallel_choice import GroupProcesses, in_one_line, load_divided
from server.text import TextCodec
from tests.server.conftest import MakeEngine
from tests.server.dividing import options, threads_kept
from tests.server.prompts import greedy, ids

PROMPTS = [ids(40, 1), ids(40, 1)[:33] + ids(10, 2), ids(7, 3)]
TIMEOUT_S = 20


def pids_of(engine: Engine) -> list[int]:
    assert isinstance(engine._processes, GroupProcesses)
    return list(engine._processes.group.pids)


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


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
