"""check-gpu's decisions: what is run, what it comes to, and what is said without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from radix_engine.gpu import fit
from radix_engine.gpu.fit import GpuFacts
from workloads.gpu import check as check_gpu
from workloads.gpu import parts as gpu_parts
from workloads.gpu.check import finish, run_parts
from workloads.gpu.outcomes import EXACT, Check, PartResult, Tolerance, compare
from workloads.gpu.parts import Bench
from workloads.results import Figure

BENCH = Bench(None, torch.device("cpu"), 0, None, 32, False, print)
RIGHT = Check("ops", "right", "0.1", 0.5)
WRONG = Check("ops", "off", "0.1", 1.5, "1 of 2 values, by up to 0.15")
BROKEN = Check("ops", "broken", "0.1", None, "1 of 2 values are no finite numbers")


def test_an_error_is_a_share_of_what_is_tolerated_there() -> None:
    expected = torch.tensor([0.0, 100.0])
    # Allowed are 0.1 at 0, and 0.1 + 0.01 * 100 = 1.1 at 100.
    check = compare("p", "n", torch.tensor([0.05, 100.22]), expected, Tolerance(0.1, 0.01))
    assert check.worst == pytest.approx(0.5, rel=1e-5)
    assert check.ok
    check = compare("p", "n", torch.tensor([0.0, 102.2]), expected, Tolerance(0.1, 0.01))
    assert check.worst == pytest.approx(2.0, rel=1e-5)
    assert not check.ok
    assert check.note == "1 of 2 values, by up to 2.2"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_wrong_even_where_it_was_expected(value: float) -> None:
    row = torch.tensor([value, 1.0])
    check = compare("p", "n", row, row, Tolerance(1.0))
    assert not check.ok
    assert check.note == "1 of 2 values are no finite numbers"


def test_another_shape_is_wrong() -> None:
    check = compare("p", "n", torch.zeros(1, 2), torch.zeros(2), Tolerance(1.0))
    assert not check.ok
    assert check.note == "shape (1, 2), not (2,)"


def test_without_a_tolerance_every_bit_counts() -> None:
    row = torch.tensor([1.0, 2.0])
    assert compare("p", "n", row, row.clone(), EXACT).ok
    check = compare("p", "n", row + torch.tensor([0.0, 3e-7]), row, EXACT)
    assert not check.ok
    assert check.note == "1 of 2 values differ"
    assert check.tolerance == "every bit"


def test_a_part_that_fails_is_named_and_the_others_run() -> None:
    def fails(bench: Bench) -> PartResult:
        raise RuntimeError("no\nkernel")

    results, problems = run_parts(
        {"ops": fails, "graphs": lambda bench: PartResult([RIGHT])}, BENCH
    )
    assert list(results) == ["graphs"]
    assert problems == {"ops": "RuntimeError: no kernel"}


@pytest.mark.parametrize(
    ("checks", "problems", "status"),
    [
        ([RIGHT], {}, 0),
        ([RIGHT, WRONG], {}, 1),
        ([RIGHT, BROKEN], {}, 1),
        ([RIGHT], {"model": "there is none"}, 1),
    ],
)
def test_the_exit_status_is_0_only_where_all_is_right(
    tmp_path: Path, checks: list[Check], problems: dict[str, str], status: int
) -> None:
    results = {"ops": PartResult(checks, {"speed": Figure(2.0, "ms", "lower")}, {"n": 1})}
    assert finish(tmp_path, results, problems, {"device": "a GPU"}) == status
    written = json.loads((tmp_path / "check-gpu.json").read_text())
    wrong = sum(not check.ok for check in checks)
    assert written["figures"]["wrong_results"]["value"] == wrong
    assert written["figures"]["wrong_results"]["goal"] == 0
    assert written["figures"]["parts_not_run"]["value"] == len(problems)
    assert written["figures"]["speed"]["value"] == 2.0
    assert written["data"]["gpu"] == {"device": "a GPU"}
    assert [check["ok"] for check in written["data"]["parts"]["ops"]["checks"]] == [
        check.ok for check in checks
    ]
    assert written["data"]["problems"] == problems


def test_what_is_wrong_is_printed_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish(tmp_path, {"ops": PartResult([RIGHT, WRONG])}, {"model": "no file"}, {})
    said = capsys.readouterr()
    rows = [line for line in said.out.splitlines() if line.startswith("ops: ")]
    assert rows[0].split() == ["ops:", "right", "0.5", "0.1", "ok"]
    assert rows[1].endswith("WRONG 1 of 2 values, by up to 0.15")
    assert "check-gpu: WRONG: ops: off" in said.err
    assert "check-gpu: model could not be run: no file" in said.err


def test_without_a_gpu_one_line_says_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fit, "read_gpu", lambda: GpuFacts())
    assert check_gpu.main(["--output", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line == f"check-gpu: {fit.why_not(GpuFacts())}"
    assert list(tmp_path.iterdir()) == []


def test_only_the_parts_that_are_asked_for_are_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, Bench]] = []

    def part(name: str) -> None:
        def run(bench: Bench) -> PartResult:
            ran.append((name, bench))
            return PartResult([RIGHT])

        monkeypatch.setitem(gpu_parts.RUNS, name, run)

    for name in check_gpu.PARTS:
        part(name)
    monkeypatch.setattr(fit, "read_gpu", lambda: GpuFacts(device="a GPU"))
    monkeypatch.setattr(fit, "why_not", lambda facts: None)
    monkeypatch.setattr(fit, "load_flashinfer", lambda: "flashinfer")
    options = ["--only", "timings", "graphs", "--layers", "4", "--seed", "7"]
    assert check_gpu.main([*options, "--output", str(tmp_path)]) == 0
    expected = Bench("flashinfer", torch.device("cuda", 0), 7, None, 4, False, check_gpu._say)
    assert ran == [("graphs", expected), ("timings", expected)]


@pytest.mark.slow
def test_it_starts_with_no_more_than_torch() -> None:
    code = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top in ("transformers", "tokenizers", "safetensors", "gguf", "tqdm", "sortedcontainers",
                   "xxhash", "fastapi", "uvicorn", "httpx", "matplotlib", "huggingface_hub"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import workloads.gpu.parts
from workloads.gpu.check import main
try:
    main(["--help"])
except SystemExit as end:
    print(end.code)
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "0"
