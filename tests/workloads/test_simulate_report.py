from __future__ import annotations

import pytest

from scheduler import Counters
from workloads.simulation.report import (
    COLUMNS,
    Row,
    named_figures,
    not_served_lines,
    order_figures,
    row_data,
    row_of,
)
from workloads.simulation.run import Outcome, Run


def outcome(arrived: float, admitted: float | None, first: float | None) -> Outcome:
    return Outcome(0, 0, 10, arrived, admitted, first, 9.0, 4, 1, "length")


def run(*outcomes: Outcome, wall_s: float = 0.5) -> Run:
    counters = Counters(
        prompt_tokens=40, cached_tokens=10, computed_tokens=30, recomputed_tokens=5, preemptions=2
    )
    return Run(outcomes, counters, makespan_s=9.0, wall_s=wall_s)


def test_a_rows_values_by_hand() -> None:
    row = row_of(run(outcome(0.0, 1.0, 3.0), outcome(1.0, 5.0, 6.0), outcome(2.0, None, None)))
    assert row.ttft_s == (3.0, 5.0)
    assert row.not_served == 1
    assert row.values == {
        "ttft_mean_s": 4.0,
        "ttft_p50_s": 4.0,
        "ttft_p99_s": pytest.approx(4.98),
        "wait_p50_s": 2.5,
        "wait_p99_s": pytest.approx(3.97),
        "hit_tokens": 10,
        "hit_rate": 0.25,
        "computed_tokens": 30,
        "recomputed_tokens": 5,
        "preemptions": 2,
        "makespan_s": 9.0,
        "requests_per_wall_s": 6.0,
    }
    assert list(row.values) == list(COLUMNS)
    assert not_served_lines({"lpm": row}) == ["lpm: 1 requests ended without a token"]
    quantiles = row_data(row)["ttft_quantiles_s"]
    assert isinstance(quantiles, list)
    assert (quantiles[0], quantiles[50], quantiles[100]) == (3.0, 4.0, 5.0)


def row(**values: float) -> Row:
    return Row({key: values.get(key) for key in COLUMNS}, 0, ())


def test_the_named_figures_by_hand() -> None:
    rows = {
        "lpm": row(hit_tokens=90, wait_p99_s=6.0, ttft_mean_s=2.0, requests_per_wall_s=900.0),
        "fcfs": row(hit_tokens=50, wait_p99_s=4.0, ttft_mean_s=5.0, requests_per_wall_s=1500.0),
    }
    figures = named_figures(rows, row(hit_tokens=100), goals=True)
    assert {key: (f.value, f.goal, f.better) for key, f in figures.items()} == {
        "hit_share_of_best_order": (0.9, 0.95, "higher"),
        "p99_wait_over_fcfs": (1.5, 1.2, "lower"),
        "mean_ttft_fcfs_over_lpm": (2.5, 2.0, "higher"),
        "requests_per_wall_s": (900.0, 1000.0, "higher"),
    }
    assert order_figures(rows)["hit_tokens_fcfs"].value == 50
    assert "makespan_s_fcfs" not in order_figures(rows)


def test_figures_that_lack_an_order_or_divide_by_zero_are_left_out() -> None:
    rows = {"lpm": row(hit_tokens=90, wait_p99_s=6.0, requests_per_wall_s=5.0)}
    assert list(named_figures(rows, None, goals=False)) == ["requests_per_wall_s"]
    rows["fcfs"] = row(wait_p99_s=0.0)
    assert list(named_figures(rows, row(hit_tokens=0), goals=False)) == ["requests_per_wall_s"]
