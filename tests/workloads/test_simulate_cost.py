from __future__ import annotations

import math
from pathlib import Path

import pytest

from scheduler import Request, ScheduledSpan
from workloads.simulation.clock import SimClock
from workloads.simulation.cost import CostModel, attended_pairs, fit
from workloads.simulation.step_file import MeasuredStep, StepFileError, read_steps, write_steps

SHAPES = [(1, 1, 1), (4, 40, 4), (16, 136, 1), (64, 9000, 2), (20, 5000, 7), (8, 3000, 8)]


def test_a_token_attends_to_itself_and_to_all_before_it() -> None:
    # Positions 3 and 4: 4 + 5. A prompt of four: 1 + 2 + 3 + 4. A reply's token at position 9: 10.
    assert attended_pairs(3, 2) == 9
    assert attended_pairs(0, 4) == 10
    assert attended_pairs(9, 1) == 10


def test_a_step_costs_the_sum_of_its_four_parts() -> None:
    cost = CostModel(fixed=1.0, per_token=0.1, per_pair=0.01, per_sequence=10.0)
    # A chunk of 2 tokens behind 3 (9 pairs) and one token behind 9 (10 pairs).
    spans = [
        ScheduledSpan(Request(1, range(5), 1), 3, 2, True),
        ScheduledSpan(Request(2, range(10), 1), 9, 1, True),
    ]
    assert cost.of_spans(spans) == pytest.approx(1.0 + 3 * 0.1 + 19 * 0.01 + 2 * 10.0)
    assert cost.seconds(3, 19, 2) == cost.of_spans(spans)


def test_costs_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        CostModel(1.0, -0.1, 0.0, 0.0)
    with pytest.raises(ValueError, match="finite"):
        CostModel(math.nan, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="some time"):
        CostModel(0.0, 0.0, 0.0, 0.0)


def measured(cost: CostModel) -> list[MeasuredStep]:
    return [MeasuredStep(*shape, cost.seconds(*shape)) for shape in SHAPES]


def test_a_fit_finds_the_costs_that_the_steps_were_made_with() -> None:
    true = CostModel(0.02, 0.001, 1e-6, 0.004)
    found, off_by = fit(measured(true))
    assert found.fixed == pytest.approx(0.02)
    assert found.per_token == pytest.approx(0.001)
    assert found.per_pair == pytest.approx(1e-6)
    assert found.per_sequence == pytest.approx(0.004)
    assert off_by == pytest.approx(0.0, abs=1e-9)


def test_no_fitted_cost_is_negative_where_an_ordinary_fit_has_one() -> None:
    # Each sequence seems to save 2 ms.
    steps = [MeasuredStep(c, p, n, 0.1 + 0.001 * c + 1e-6 * p - 0.002 * n) for c, p, n in SHAPES]
    found, off_by = fit(steps)
    assert found.per_sequence == 0.0
    assert found.fixed > 0.08
    assert 0 < off_by < 0.05


def test_a_short_step_counts_as_much_as_a_long_one() -> None:
    # Two kinds of steps that no costs fit together: off by like shares, not by like seconds.
    fast = [MeasuredStep(*shape, 0.01) for shape in SHAPES]
    slow = [MeasuredStep(*shape, 10.0) for shape in SHAPES]
    found, _ = fit(fast + slow)
    # Least squares of c/0.01 - 1 and c/10 - 1: nearer to the fast ones by far.
    assert found.seconds(1, 1, 1) == pytest.approx(0.01, rel=0.05)


def test_steps_that_cannot_tell_the_costs_apart_are_refused() -> None:
    few = measured(CostModel(1.0, 1.0, 1.0, 1.0))[:3]
    with pytest.raises(ValueError, match="measure steps of different sizes"):
        fit(few)
    with pytest.raises(ValueError, match="too much alike"):
        fit([MeasuredStep(8, 36, 1, 0.1)] * 20)
    with pytest.raises(ValueError, match="0 measured steps"):
        fit([])


def test_steps_come_back_from_their_file(tmp_path: Path) -> None:
    steps = measured(CostModel(0.02, 0.001, 1e-6, 0.004))
    path = tmp_path / "deep" / "steps.jsonl"
    write_steps(path, steps)
    assert read_steps(path) == steps


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", r"line 2: not JSON"),
        ("[1]", r"line 2: must be a JSON object"),
        ('{"computed": 1, "pairs": 1, "sequences": 1}', r"line 2: seconds must be a number above"),
        (
            '{"computed": 0, "pairs": 1, "sequences": 1, "seconds": 1}',
            r"line 2: computed must be a whole number above 0, is 0",
        ),
        (
            '{"computed": 1, "pairs": 1.5, "sequences": 1, "seconds": 1}',
            r"pairs must be a whole number above 0, is 1.5",
        ),
        (
            '{"computed": 1, "pairs": 1, "sequences": true, "seconds": 1}',
            r"sequences must be a whole number above 0, is True",
        ),
    ],
)
def test_a_wrong_line_of_steps_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "steps.jsonl"
    good = '{"computed": 1, "pairs": 1, "sequences": 1, "seconds": 1}'
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(StepFileError, match=message):
        read_steps(path)


def test_a_missing_file_of_steps_is_named(tmp_path: Path) -> None:
    with pytest.raises(StepFileError, match=r"none\.jsonl: cannot be read"):
        read_steps(tmp_path / "none.jsonl")


def test_the_clock_never_goes_back() -> None:
    clock = SimClock()
    clock.advance(1.5)
    clock.advance_to(4.0)
    assert clock.read() == clock.now == 4.0
    for wrong in (-0.1, math.nan):
        with pytest.raises(ValueError, match="cannot move"):
            clock.advance(wrong)
    for wrong in (3.9, math.nan):
        with pytest.raises(ValueError, match="cannot go back"):
            clock.advance_to(wrong)
    assert clock.now == 4.0
