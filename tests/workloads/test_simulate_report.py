from __future__ import annotations

import pytest

from scheduler import Counters
from workloads.simulation.prices import Prices
from workloads.simulation.report import (
    COLUMNS,
    Row,
    named_figures,
    order_figures,
    remarks,
    row_data,
    row_of,
    rows_table,
    with_costs,
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
        "finish_mean_s": 8.0,
        "session_mean_s": 9.0,
        "hit_tokens": 10,
        "hit_rate": 0.25,
        "computed_tokens": 30,
        "recomputed_tokens": 5,
        "preemptions": 2,
        "makespan_s": 9.0,
        "requests_per_wall_s": 6.0,
        "gpu_s": None,
        "dollars": None,
    }
    assert list(row.values) == list(COLUMNS)
    assert remarks({"lpm": row}) == ["lpm: 1 requests ended without a token"]
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


def test_sessions_are_timed_from_their_first_request_to_the_end_of_their_last() -> None:
    outcomes = (
        Outcome(0, 0, 10, 1.0, 1.0, 2.0, 3.0),
        Outcome(1, 0, 10, 2.0, 2.0, 3.0, 4.0),
        Outcome(0, 1, 10, 5.0, 5.0, 6.0, 8.0),
        Outcome(2, 0, 10, 0.0, 0.0, 1.0, 50.0),
    )
    ended = Run(outcomes, Counters(), 50.0, 1.0, 20.0, frozenset([2]), 4)
    row = row_of(ended)
    assert row.values["session_mean_s"] == (7.0 + 2.0) / 2  # the third outgrew the memory
    assert row.values["finish_mean_s"] == (2.0 + 2.0 + 3.0 + 50.0) / 4
    assert remarks({"lpm": row}) == [
        "lpm: 1 sessions outgrew the memory, or the context, and ended there: 4 requests were left "
        "out"
    ]
    assert row_data(row)["left_out_requests"] == 4


def test_token_ids_that_stand_for_blocks_count_as_their_tokens() -> None:
    values = row_of(run(outcome(0.0, 1.0, 3.0)), id_tokens=64).values
    assert values["hit_tokens"] == 640
    assert values["computed_tokens"] == 30 * 64
    assert values["recomputed_tokens"] == 5 * 64
    assert values["hit_rate"] == 0.25


def test_costs_are_the_users_own_figures_or_none() -> None:
    priced = row_of(Run((), Counters(computed_tokens=3000, recomputed_tokens=600), 90.0, 1.0, 72.0))
    assert with_costs(priced, Prices()) == priced
    assert "dollars" not in rows_table({"lpm": priced})
    by_rate = with_costs(priced, Prices(100.0, 2.0)).values
    assert by_rate["gpu_s"] == 36.0
    assert by_rate["dollars"] == pytest.approx(0.02)
    by_steps = with_costs(priced, Prices(None, 5.0)).values
    assert by_steps["gpu_s"] == 72.0
    assert by_steps["dollars"] == pytest.approx(0.1)
    assert with_costs(priced, Prices(100.0)).values["dollars"] is None
