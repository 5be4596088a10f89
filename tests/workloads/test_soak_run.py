"""The soak over a tiny model: all is well with the server, and what is not is found."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from scheduler import Limits
from server.answer_text import AnswerText
from tests.server_http.real import make_tiny_engine
from tests.server_http.running import serving
from tests.tiny import make_tiny_folder
from workloads.__main__ import main
from workloads.soak.command import soak
from workloads.soak.options import SoakOptions


def figures(folder: Path) -> dict[str, float]:
    result = json.loads((folder / "soak.json").read_text())
    return {name: figure["value"] for name, figure in result["figures"].items()}


@pytest.mark.slow
def test_a_server_under_three_times_its_load_answers_as_when_calm_and_loses_nothing(
    tmp_path: Path,
) -> None:
    model = make_tiny_folder(tmp_path / "tiny", tokenizer=True)
    server = ["--model", str(model), "--kv-memory", "1MiB", "--max-running", "6"]
    load = ["--seconds", "10", "--questions", "36", "--output", str(tmp_path)]
    assert main(["soak", *server, *load]) == 0
    found = figures(tmp_path)
    assert found["soak_compared"] > 50
    assert found["soak_aborts"] > 5
    wrong = ("wrong_answers", "errors", "leaked_blocks", "audit_problems", "unfinished_requests")
    assert [found[f"soak_{name}"] for name in wrong] == [0] * len(wrong)


@pytest.mark.slow
def test_wrong_answers_and_a_lost_block_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = itertools.count()
    push = AnswerText.push

    def lying(self: AnswerText, *arguments: Any) -> tuple[str, bool]:
        text, stopped = push(self, *arguments)
        return text + ("!" if next(calls) % 200 == 199 else ""), stopped

    with make_tiny_engine(tmp_path / "tiny", 128, Limits(64, 4)) as engine:
        monkeypatch.setattr(AnswerText, "push", lying)
        engine._loop.call(lambda: engine._cache.pool.allocate(1))
        with serving(engine) as (url, _, _):
            status = soak(
                SoakOptions(
                    seconds=2.0,
                    rate=None,
                    clients=None,
                    questions=12,
                    seed=1,
                    url=url,
                    server_options=(),
                    output=tmp_path,
                )
            )
    assert status == 1
    found = figures(tmp_path)
    assert found["soak_wrong_answers"] > 0
    assert found["soak_leaked_blocks"] == 1
    assert "WRONG: " in capsys.readouterr().out
