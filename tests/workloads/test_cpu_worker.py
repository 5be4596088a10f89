from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from workloads.cpu.line_protocol import Sessions, Times, serve
from workloads.cpu.load import EngineFailed, Load, LoadFailed
from workloads.cpu.worker import Worker

# A call's first token comes after as many seconds as its prompt has tokens.
SCRIPTED = """
import sys
from workloads.cpu.line_protocol import serve, take_stdout
out = take_stdout()
print("a library's own words")
def run(sessions, tokens):
    if tokens == 13:
        raise ValueError("13 tokens are too many")
    if tokens == 99:
        sys.exit(3)
    return [[(len(p), len(p) + 1.0, tokens) for p in calls] for calls in sessions], 9.0
serve(out, {"dtype": "bf16"}, run)
"""
LOAD = Load([[[1, 2], [1, 2, 3]], [[4]]], 5)


def worker(tmp_path: Path, code: str, limit_s: float = 30.0) -> Worker:
    return Worker([sys.executable, "-c", code], tmp_path / "worker.log", limit_s)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_answers_loads_and_ends_with_its_input(tmp_path: Path) -> None:
    engine = worker(tmp_path, SCRIPTED)
    try:
        assert engine.about == {"dtype": "bf16"}
        assert engine.ready_s > 0
        outcome = engine.run(LOAD, 30.0)
        assert outcome.sessions == (((2, 3.0, 5), (3, 4.0, 5)), ((1, 2.0, 5),))
        assert outcome.wall_s == 9.0
        assert "a library's own words" in (tmp_path / "worker.log").read_text()
    finally:
        engine.stop()
    assert not is_running(engine.pid)


def test_a_load_that_fails_leaves_the_worker_able_to_go_on(tmp_path: Path) -> None:
    engine = worker(tmp_path, SCRIPTED)
    try:
        with pytest.raises(LoadFailed, match="ValueError: 13 tokens are too many"):
            engine.run(Load([[[1]]], 13), 30.0)
        assert engine.run(LOAD, 30.0).tokens == 15
    finally:
        engine.stop()


def test_a_worker_that_dies_is_reported_with_its_status(tmp_path: Path) -> None:
    engine = worker(tmp_path, SCRIPTED)
    try:
        with pytest.raises(EngineFailed, match="status 3"):
            engine.run(Load([[[1]]], 99), 30.0)
    finally:
        engine.stop()


def test_a_worker_that_cannot_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"(?s)status 1.*No module named 'nowhere'"):
        worker(tmp_path, "import nowhere")
    with pytest.raises(EngineFailed, match="cannot be started"):
        Worker([str(tmp_path / "no-python")], tmp_path / "w.log", 5.0)


def test_a_worker_that_says_nothing_is_not_waited_for_and_ended(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getpid(), file=sys.stderr, flush=True); sys.stdin.read()"
    with pytest.raises(EngineFailed, match="no answer within"):
        worker(tmp_path, code, limit_s=0.5)
    written = (tmp_path / "worker.log").read_text()
    assert not written or not is_running(int(written))


@pytest.mark.parametrize("line", ["hello", "[1]", '{"steady": 1}'])
def test_a_worker_that_speaks_otherwise_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(EngineFailed, match=r"no JSON object|does not say that it is ready"):
        worker(tmp_path, f"print('''{line}''', flush=True)")


def test_the_protocol_is_one_line_of_json_for_each_load() -> None:
    def run(sessions: Sessions, tokens: int) -> tuple[list[list[Times]], float]:
        return [[(0.5, 1.0, tokens) for _ in calls] for calls in sessions], 1.5

    out = io.StringIO()
    serve(out, {"a": 1}, run, [json.dumps({"sessions": [[[7, 8]]], "max_tokens": 3})])
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"ready": {"a": 1}},
        {"sessions": [[[0.5, 1.0, 3]]], "wall_s": 1.5},
    ]
