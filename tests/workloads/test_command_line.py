"""What the command line says where it is wrong, and when it is stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from workloads import __main__ as command_line


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["simulate", "--blocks", "x"], "simulate --help"),
        (["bench-agent", "--agents", "0"], "bench-agent --help"),
        ([], "python -m workloads --help"),
    ],
)
def test_a_wrong_option_is_told_in_a_line_and_where_the_options_are(
    wrong: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(wrong)
    first, second = capsys.readouterr().err.splitlines()
    assert (ended.value.code, first[:7]) == (2, "error: ")
    assert second.endswith(f"{told} lists all options")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_replay_says_how_to_go_on(
    number: signal.Signals,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stopped(asked: Any) -> int:
        os.kill(os.getpid(), number)
        return 0

    monkeypatch.setattr(command_line, "bench_agent", stopped)
    assert command_line.main(["bench-agent", "--output", str(tmp_path)]) == status
    assert "--resume goes on" in capsys.readouterr().err
