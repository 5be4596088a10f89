"""What a simulation says: a row for each order, the named figures, and the data of its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workloads.agents.measures import percentile
from workloads.results import Better, Figure, number, table
from workloads.simulation.grid import key_of
from workloads.simulation.prices import Prices
from workloads.simulation.run import Run

COLUMNS: Mapping[str, tuple[str, str, Better]] = {
    "ttft_mean_s": ("TTFT mean (s)", "s", "lower"),
    "ttft_p50_s": ("p50 (s)", "s", "lower"),
    "ttft_p99_s": ("p99 (s)", "s", "lower"),
    "wait_p50_s": ("wait p50 (s)", "s", "lower"),
    "wait_p99_s": ("p99 (s)", "s", "lower"),
    "finish_mean_s": ("end mean (s)", "s", "lower"),
    "session_mean_s": ("session mean (s)", "s", "lower"),
    "hit_tokens": ("hit tokens", "tokens", "higher"),
    "hit_rate": ("hit rate", "share", "higher"),
    "computed_tokens": ("computed", "tokens", "lower"),
    "recomputed_tokens": ("recomputed", "tokens", "lower"),
    "preemptions": ("preempted", "requests", "lower"),
    "makespan_s": ("makespan (s)", "s", "lower"),
    "requests_per_wall_s": ("requests/s of wall", "requests/s", "higher"),
    "gpu_s": ("GPU (s)", "s", "lower"),
    "dollars": ("dollars", "dollars", "lower"),
}
"""What a row holds: heading, unit, and which way is better."""

GOALS = {
    "hit_share_of_best_order": 0.95,
    "p99_wait_over_fcfs": 1.2,
    "mean_ttft_fcfs_over_lpm": 2.0,
    "requests_per_wall_s": 1000.0,
}
"""For the load zipf; other loads have no goals."""

NOTES = (
    "TTFT: from arrival to the end of the step that gives the first token; wait: from arrival to "
    "the plan of the step that first computes something of the request; both over all served",
    "end: from a request's arrival to its end; session: from the arrival of a session's first "
    "request to the end of its last, without those that outgrew the memory",
    "hit tokens: prompt tokens found in the cache at first admission; computed: prompt tokens run "
    "for the first time; recomputed: tokens run again after a preemption",
    "requests/s of wall: simulated requests that the simulator ends in a second of real time",
    "hit_share_of_best_order: lpm's hit tokens over those of dfs with all requests known at the "
    "start and no bound on how many may pass a waiting one",
    "p99_wait_over_fcfs: lpm's p99 wait over fcfs's; mean_ttft_fcfs_over_lpm: fcfs's mean TTFT "
    "over lpm's; requests_per_wall_s: that of the slowest order",
    "GPU: seconds of prefill at --prefill-tokens-per-s, recomputing included; without that what "
    "all steps took; dollars: at --gpu-hour-dollars",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One combination's values, by the keys of ``COLUMNS``; None for what there is nothing to take
    from. ``not_served``: requests that ended without a token. ``ttft_s``: of each served one,
    ascending. ``busy_s``: what all steps took. ``outgrown``: sessions that ended since they did not
    fit, and ``left_out``: their requests that did not come for it.
    """

    values: Mapping[str, float | None]
    not_served: int
    ttft_s: tuple[float, ...]
    busy_s: float = 0.0
    outgrown: int = 0
    left_out: int = 0


def row_of(run: Run, id_tokens: int = 1) -> Row:
    """The values of a run, each token id of which stands for so many tokens."""
    ttft = sorted(t for outcome in run.outcomes if (t := outcome.ttft_s) is not None)
    wait = [w for outcome in run.outcomes if (w := outcome.wait_s) is not None]
    counters = run.counters
    values: dict[str, float | None] = {
        "ttft_mean_s": sum(ttft) / len(ttft) if ttft else None,
        "ttft_p50_s": percentile(ttft, 0.5),
        "ttft_p99_s": percentile(ttft, 0.99),
        "wait_p50_s": percentile(wait, 0.5),
        "wait_p99_s": percentile(wait, 0.99),
        "finish_mean_s": _mean([end for o in run.outcomes if (end := o.finish_s) is not None]),
        "session_mean_s": _mean(_session_times(run)),
        "hit_tokens": counters.cached_tokens * id_tokens,
        "hit_rate": _ratio(counters.cached_tokens, counters.prompt_tokens),
        "computed_tokens": counters.computed_tokens * id_tokens,
        "recomputed_tokens": counters.recomputed_tokens * id_tokens,
        "preemptions": counters.preemptions,
        "makespan_s": run.makespan_s,
        "requests_per_wall_s": _ratio(len(run.outcomes), run.wall_s),
        "gpu_s": None,
        "dollars": None,
    }
    not_served = len(run.outcomes) - len(ttft)
    return Row(values, not_served, tuple(ttft), run.busy_s, run.outgrown, run.left_out)


def with_costs(row: Row, prices: Prices) -> Row:
    """The row with what it costs by the user's own figures, if there are any."""
    if prices == Prices():
        return row
    tokens = (row.values["computed_tokens"] or 0) + (row.values["recomputed_tokens"] or 0)
    seconds = prices.gpu_s(tokens)
    seconds = row.busy_s if seconds is None else seconds
    costs = {"gpu_s": seconds, "dollars": prices.dollars(seconds)}
    return replace(row, values={**row.values, **costs})


def _session_times(run: Run) -> list[float]:
    """How long each session took that was served to its end."""
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for outcome in run.outcomes:
        first.setdefault(outcome.session, outcome.arrived_s)
        if outcome.ended_s is not None:
            last[outcome.session] = outcome.ended_s
    return [last[each] - first[each] for each in last if each not in run.outgrown_sessions]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def named_figures(
    rows: Mapping[str, Row], best_order: Row | None, *, goals: bool
) -> dict[str, Figure]:
    """The figures with names of their own, without those that lack an order or divide by 0.

    ``rows``: by order. ``best_order``: dfs with all requests known at the start, and no
    bound on overtaking.
    """

    def value(row: Row | None, key: str) -> float | None:
        return None if row is None else row.values[key]

    lpm, fcfs = rows.get("lpm"), rows.get("fcfs")
    rates = [rate for row in rows.values() if (rate := value(row, "requests_per_wall_s"))]
    found: dict[str, tuple[float | None, str, Better]] = {
        "hit_share_of_best_order": (
            _ratio(value(lpm, "hit_tokens"), value(best_order, "hit_tokens")),
            "ratio",
            "higher",
        ),
        "p99_wait_over_fcfs": (
            _ratio(value(lpm, "wait_p99_s"), value(fcfs, "wait_p99_s")),
            "ratio",
            "lower",
        ),
        "mean_ttft_fcfs_over_lpm": (
            _ratio(value(fcfs, "ttft_mean_s"), value(lpm, "ttft_mean_s")),
            "ratio",
            "higher",
        ),
        "requests_per_wall_s": (min(rates, default=None), "requests/s", "higher"),
    }
    return {
        key: Figure(figure, unit, better, GOALS[key] if goals else None)
        for key, (figure, unit, better) in found.items()
        if figure is not None
    }


def order_figures(rows: Mapping[str, Row]) -> dict[str, Figure]:
    """Every value of every combination, as ``<key>_<name>``."""
    return {
        f"{key}_{key_of(name)}": Figure(value, COLUMNS[key][1], COLUMNS[key][2])
        for name, row in rows.items()
        for key, value in row.values.items()
        if value is not None
    }


def rows_table(rows: Mapping[str, Row]) -> str:
    """The rows as text, a line each; without columns that are empty."""
    keys = [key for key in COLUMNS if any(row.values[key] is not None for row in rows.values())]
    return table(
        ("order", *(COLUMNS[key][0] for key in keys)),
        [(name, *(_cell(key, row.values[key]) for key in keys)) for name, row in rows.items()],
    )


def row_data(row: Row) -> dict[str, object]:
    """A row as JSON-able data, with the TTFT's hundredths from 0 to 1."""
    quantiles = [percentile(row.ttft_s, step / 100) for step in range(101)]
    return {
        **row.values,
        "not_served": row.not_served,
        "outgrown_sessions": row.outgrown,
        "left_out_requests": row.left_out,
        "ttft_quantiles_s": quantiles,
    }


def remarks(rows: Mapping[str, Row]) -> Sequence[str]:
    """Where not all was served; empty where all was."""
    lines = []
    for name, row in rows.items():
        if row.not_served:
            lines.append(f"{name}: {row.not_served:,} requests ended without a token")
        if row.outgrown:
            lines.append(
                f"{name}: {row.outgrown:,} sessions outgrew the memory, or the context, and ended "
                f"there: {row.left_out:,} requests were left out"
            )
    return lines


def _cell(key: str, value: float | None) -> str:
    if key == "hit_rate" and value is not None:
        return f"{value:.1%}"
    return number(value)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
