from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from workloads.__main__ import main
from workloads.results import Figure, figures_table, number, table, write_results

FIGURES = {
    "hit_rate": Figure(0.75, "share", "higher"),
    "ratio": Figure(0.2, "ratio", "lower", goal=0.333),
    "rate": Figure(9.0, "tokens/s", "higher", goal=10.0),
}


def test_a_results_file_has_the_form_that_all_benchmarks_share(tmp_path: Path) -> None:
    path = write_results(tmp_path / "deep" / "results", "bench-x", FIGURES, {"calls": [1]})
    assert path == tmp_path / "deep" / "results" / "bench-x.json"
    written = json.loads(path.read_text())
    assert list(written) == ["name", "commit", "date", "machine", "figures", "data"]
    assert written["name"] == "bench-x"
    assert written["figures"]["ratio"] == {
        "value": 0.2,
        "unit": "ratio",
        "better": "lower",
        "goal": 0.333,
    }
    assert written["figures"]["hit_rate"]["goal"] is None
    assert written["data"] == {"calls": [1]}
    assert {"cpu", "cores", "memory_gib", "python", "torch"} <= written["machine"].keys()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_figure_that_is_not_a_number_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    path = write_results(tmp_path, "bench-x", FIGURES, None)
    before = path.read_text()
    with pytest.raises(ValueError, match="JSON"):
        write_results(tmp_path, "bench-x", {"bad": Figure(float("nan"), "s", "lower")}, None)
    assert path.read_text() == before
    assert os.listdir(tmp_path) == ["bench-x.json"]


def test_the_table_shows_each_goal_and_whether_it_is_met() -> None:
    lines = figures_table(FIGURES).splitlines()
    assert lines[2].split() == ["hit_rate", "0.75", "share"]
    assert lines[3].split() == ["ratio", "0.2", "ratio", "<=", "0.333", "met"]
    assert lines[4].split() == ["rate", "9", "tokens/s", ">=", "10", "MISSED"]


def test_tables_are_aligned_and_numbers_readable() -> None:
    assert table(("name", "v"), [("a", "1"), ("long name", "20")]).splitlines() == [
        "name        v",
        "---------  --",
        "a           1",
        "long name  20",
    ]
    assert [number(v) for v in (None, 1234567, 12345.6, 0.123456, 3, 99.99)] == [
        "-",
        "1,234,567",
        "12,346",
        "0.1235",
        "3",
        "99.99",
    ]


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    for command in ("simulate", "bench-tree", "bench-scheduler", "bench-startup", "bench-agent"):
        with pytest.raises(SystemExit) as error:
            main([command, "--output", str(file / "results")])
        assert error.value.code == 2
        message = capsys.readouterr().err
        assert "--output" in message
        assert "name another folder" in message
