from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import make_tiny_folder
from workloads.__main__ import main
from workloads.simulation.measure_steps import Part, random_steps, shape_of
from workloads.simulation.step_file import MeasuredStep, read_steps


def test_a_measured_step_has_the_shape_that_the_costs_are_for() -> None:
    # A reply's token behind 9 attends to 10; 2 tokens behind 3 attend to 4 and 5.
    assert shape_of([Part(9, 1), Part(3, 2)], 0.5) == MeasuredStep(3, 19, 2, 0.5)


def test_measured_steps_are_of_three_kinds_within_their_bounds() -> None:
    steps = random_steps(60, 0, 512)
    assert steps == random_steps(60, 0, 512)
    assert steps != random_steps(60, 1, 512)
    replies, prompts, both = steps[::3], steps[1::3], steps[2::3]
    assert all(part.tokens == 1 for parts in replies for part in parts)
    assert all(len(parts) == 1 and 16 <= parts[0].tokens <= 256 for parts in prompts)
    assert all(len(parts) >= 2 and parts[-1].tokens >= 16 for parts in both)
    assert all(32 <= part.start <= 512 for parts in steps for part in parts)
    assert max(len(parts) for parts in steps) > 16
    with pytest.raises(ValueError, match="longer context"):
        random_steps(60, 0, 100)


def test_steps_of_a_model_are_measured_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_tiny_folder(tmp_path / "model", tokenizer=True)
    file = tmp_path / "steps.jsonl"
    options = ["--model", str(folder), "--steps", "12", "--output", str(file)]
    assert main(["measure-steps", *options]) == 0
    steps = read_steps(file)
    assert len(steps) == 12
    expected = [shape_of(parts, 1.0) for parts in random_steps(12, 0, 1024 - 256)]
    assert [(s.computed, s.pairs, s.sequences) for s in steps] == [
        (s.computed, s.pairs, s.sequences) for s in expected
    ]
    assert "costs, in seconds" in capsys.readouterr().out


def test_a_model_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "steps.jsonl"
    missing = str(tmp_path / "none")
    assert main(["measure-steps", "--model", missing, "--output", str(file)]) == 1
    assert missing in capsys.readouterr().err
    assert not file.exists()
