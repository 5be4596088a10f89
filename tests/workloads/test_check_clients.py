"""What clients that others wrote report is read right, and held against the server's counters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from workloads.clients import environments
from workloads.clients.check import load_figures, probe_figures
from workloads.clients.environments import program, set_up
from workloads.clients.load import Told, counted, load_command, read_load
from workloads.clients.tool_probe import Findings, probe_command, read_probe
from workloads.cpu.peer_setup import SetupFailed

COUNTERS = {
    "requests_finished": 3,
    "prompt_tokens": 100,
    "cached_tokens": 40,
    "generated_tokens": 9,
}


def written(folder: Path, **sums: Any) -> Path:
    told: dict[str, Any] = {
        "request_count": {"unit": "requests", "avg": 24.0},
        "total_usage_prompt_tokens": {"avg": 1000.0},
        "total_usage_prompt_cache_read_tokens": {"avg": 800.0},
        "total_usage_completion_tokens": {"avg": 288.0},
        "error_summary": [{"error_details": {"code": 400}, "count": 2}],
    }
    (folder / "profile_export_aiperf.json").write_text(json.dumps(told | sums))
    return folder


def test_aiperfs_sums_are_read(tmp_path: Path) -> None:
    told = read_load(written(tmp_path))
    assert told == Told(24, 1000, 800, 288, failed=2)
    assert told.cached_share == 0.8


@pytest.mark.parametrize("missing", [None, "a number"])
def test_a_result_that_lacks_a_sum_names_it(tmp_path: Path, missing: Any) -> None:
    folder = written(tmp_path, total_usage_prompt_cache_read_tokens=missing)
    with pytest.raises(ValueError, match="no total_usage_prompt_cache_read_tokens"):
        read_load(folder)


def test_no_result_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="aiperf wrote no result"):
        read_load(tmp_path)
    with pytest.raises(ValueError, match="canitoolcall wrote no report"):
        read_probe(tmp_path / "report.json")


def test_the_server_counts_what_came_between_two_readings() -> None:
    after = {
        "requests_finished": 27,
        "prompt_tokens": 1100,
        "cached_tokens": 840,
        "generated_tokens": 297,
    }
    assert counted(COUNTERS, after) == Told(24, 1000, 800, 288)


@pytest.mark.parametrize(
    ("seen", "gap"),
    [
        (Told(24, 1000, 800, 288), 0),
        (Told(24, 1000, 784, 288), 16),
        (Told(24, 1010, 800, 288), 10),
        (Told(25, 1000, 800, 288), 1),
    ],
)
def test_any_difference_to_the_counters_misses_the_goal(seen: Told, gap: int) -> None:
    figures = load_figures("chat", Told(24, 1000, 800, 288, failed=0), seen)
    largest = figures["aiperf_chat_largest_gap"]
    assert (largest.value, largest.met) == (gap, gap == 0)
    assert figures["aiperf_chat_requests"].met
    assert figures["aiperf_chat_failed"].met


def test_requests_that_failed_or_never_came_miss_the_goal() -> None:
    told = Told(23, 1000, 800, 288, failed=1)
    figures = load_figures("messages", told, told)
    assert not figures["aiperf_messages_requests"].met
    assert not figures["aiperf_messages_failed"].met


def test_what_the_probe_found_is_counted_with_its_words(tmp_path: Path) -> None:
    def row(scenario: str, check: str, status: str, *, stream: bool, detail: str = "") -> Any:
        warnings = ["a marker"] if scenario == "warns" else []
        told = {"scenario_id": scenario, "check": check, "status": status, "stream": stream}
        return told | {"detail": detail, "warnings": warnings}

    rows = [
        row("one", "scenario", "pass", stream=False, detail="content 5 chars"),
        row("one", "scenario", "fail", stream=True, detail="no call"),
        row("one", "stream_equals_nonstream", "fail", stream=True, detail="names differ"),
        row("two", "scenario", "error", stream=False, detail="HTTP 400"),
        row("two", "stream_equals_nonstream", "skip", stream=True, detail="a request errored"),
        row("warns", "scenario", "pass", stream=False),
    ]
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"outcomes": rows}))
    found = read_probe(report)
    assert found.statuses == {"pass": 2, "fail": 2, "error": 1, "skip": 1}
    assert found.problems == (
        "one (streamed): fail: no call",
        "one (stream = whole): fail: names differ",
        "two (whole): error: HTTP 400",
        "warns (whole): pass: a marker",
    )
    figures = probe_figures(found)
    assert {name: figure.value for name, figure in figures.items()} == {
        "canitoolcall_passed": 2,
        "canitoolcall_failed": 2,
        "canitoolcall_errors": 1,
        "canitoolcall_stream_differences": 1,
    }
    met = [figure.met for figure in probe_figures(Findings({"fail": 3}, 0, ())).values()]
    assert met == [None, None, True, True], "what a model cannot do is no fault of the server's"


def test_the_commands_name_server_model_and_result(tmp_path: Path) -> None:
    command = load_command(Path("aiperf"), "http://x:1", "m", Path("folder"), "messages", tmp_path)
    pairs = dict(pairwise(command))
    assert pairs["--url"] == "http://x:1"
    assert pairs["--endpoint-type"] == "messages"
    assert pairs["--output-artifact-dir"] == str(tmp_path)
    assert "--reset-kv-cache" in command
    probe = probe_command(Path("canitoolcall"), "http://x:1", "m", tmp_path / "report")
    assert probe[:6] == ["canitoolcall", "probe", "--base-url", "http://x:1/v1", "--model", "m"]


def test_a_client_is_installed_once_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def note(command: Sequence[str], log: Path, title: str) -> None:
        seen.append(command[-1])
        program(tmp_path, title).parent.mkdir(parents=True, exist_ok=True)
        if command[-1].startswith("canitoolcall"):
            raise SetupFailed("no such version")

    monkeypatch.setattr(environments, "run_logged", note)
    for _ in range(2):
        set_up(tmp_path, "aiperf", tmp_path / "log")
    assert seen == [str(tmp_path / "clients" / "aiperf"), "aiperf==0.13.0"]
    seen.clear()
    for _ in range(2):
        monkeypatch.setitem(environments.CLIENTS, "aiperf", "aiperf==0.14.0")
        set_up(tmp_path, "aiperf", tmp_path / "log")
    assert seen[1:] == ["aiperf==0.14.0"], "another version is made anew, and once"
    for _ in range(2):
        with pytest.raises(SetupFailed):
            set_up(tmp_path, "canitoolcall", tmp_path / "log")
