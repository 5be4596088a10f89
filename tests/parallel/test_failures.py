"""A process that is lost, fails or hangs ends the group, says why, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from radix_engine.model.batch import Span
from radix_engine.parallel.errors import ParallelError
from radix_engine.parallel.group import Group
from tests.parallel.helpers import BAD_TOKEN, FragileRunner, all_processes, tiny_model

STEP = [Span([1, 2, 3], 0, [0], 1)]
SOON_S = 15.0

STUCK = """
import sys
from pathlib import Path
from radix_engine.parallel.group import Group
from tests.parallel.helpers import all_processes, make_stuck, tiny_model

group = Group(3)
print("pids", *group.pids, flush=True)
model = tiny_model(Path(sys.argv[1]), num_attention_heads=6, num_key_value_heads=3,
                   intermediate_size=96)
all_processes(group, model, make_runner=make_stuck)
"""


@contextmanager
def soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON_S


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_closing_ends_all_processes_and_is_final(tmp_path: Path) -> None:
    group = Group(2)
    runner = all_processes(group, tiny_model(tmp_path))
    runner.forward(STEP)
    pids = list(group.pids)
    assert len(pids) == 1
    with soon():
        runner.close()
    assert are_gone(pids)
    runner.close()
    with pytest.raises(ParallelError, match="is closed"):
        runner.forward(STEP)
    assert not torch.distributed.is_initialized()


def test_a_killed_process_ends_the_group_by_name(tmp_path: Path) -> None:
    with Group(2) as group:
        runner = all_processes(group, tiny_model(tmp_path))
        runner.forward(STEP)
        pids = list(group.pids)
        os.kill(pids[0], signal.SIGKILL)
        for _ in range(2):
            with (
                soon(),
                pytest.raises(ParallelError, match=rf"rank 1 \(process {pids[0]}\).*SIGKILL"),
            ):
                runner.forward(STEP)
        with pytest.raises(ParallelError, match="SIGKILL"):
            runner.copy_rows([(0, 1, 1)])
    assert are_gone(pids)


def test_an_error_in_a_process_comes_with_its_traceback(tmp_path: Path) -> None:
    with Group(2) as group:
        runner = all_processes(group, tiny_model(tmp_path), make_runner=FragileRunner)
        runner.forward(STEP)
        pids = list(group.pids)
        with soon(), pytest.raises(ParallelError) as raised:
            runner.forward([Span([BAD_TOKEN], 0, [0], 1)])
        message = str(raised.value)
        assert f"rank 1 (process {pids[0]}) failed:\nTraceback" in message
        assert f"ArithmeticError: token {BAD_TOKEN} is too much" in message
        assert "helpers.py" in message
        with pytest.raises(ParallelError, match="is too much"):
            runner.forward(STEP)
    assert are_gone(pids)


def test_a_process_that_hangs_ends_the_group_when_the_steps_time_is_over(tmp_path: Path) -> None:
    with Group(2, step_timeout_s=0.5) as group:
        runner = all_processes(group, tiny_model(tmp_path))
        runner.forward(STEP)
        pids = list(group.pids)
        os.kill(pids[0], signal.SIGSTOP)
        with soon(), pytest.raises(ParallelError, match=r"within 0\.5 s; .* --step-timeout"):
            runner.forward(STEP)
    assert are_gone(pids)


def test_an_error_of_this_process_is_raised_as_it_is_and_ends_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Group(1) as group:
        runner = all_processes(group, tiny_model(tmp_path))
        assert runner.forward(STEP).shape == (1, 512)

        def fail(spans: object) -> torch.Tensor:
            raise torch.OutOfMemoryError("no room for a step")

        monkeypatch.setattr(runner._local, "forward", fail)
        with pytest.raises(torch.OutOfMemoryError, match="no room"):
            runner.forward(STEP)
        with pytest.raises(ParallelError, match="rank 0: OutOfMemoryError: no room"):
            runner.forward(STEP)


def test_processes_end_with_the_one_that_started_them_whatever_they_do(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, str(tmp_path)],
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        pids: list[int] = []
        for line in process.stdout:
            if line.startswith("pids"):
                pids = [int(word) for word in line.split()[1:]]
            if line.startswith("stuck"):
                break
        assert len(pids) == 2
        assert not any(are_gone([pid]) for pid in pids)
        process.kill()
        # The others share this output: it ends when the last of them has.
        try:
            process.communicate(timeout=SOON_S)
        except subprocess.TimeoutExpired:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise
