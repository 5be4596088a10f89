"""Figures, tables and data of one or two agent runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from workloads.agents.measures import Turn, record_data
from workloads.agents.run import Run
from workloads.results import Figure, goal_text, number, table

# A warm turn computes little more than a tool result, so it has to start at least 3 times sooner.
WARM_TTFT_RATIO_GOAL = 0.333
_MIB = 2**20


def _ratio(on: float | None, off: float | None) -> float | None:
    return on / off if on is not None and off else None


def _mib(run: Run) -> float | None:
    return None if run.peak_memory_bytes is None else run.peak_memory_bytes / _MIB


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """The figures under their fixed keys. What was not measured has no key."""
    found: dict[str, Figure | None] = {}
    for run in runs:
        values = run.summary
        found |= {
            f"warm_ttft_p50_ms_{run.label}": _figure(values.warm.p50_ms, "ms"),
            f"warm_ttft_p99_ms_{run.label}": _figure(values.warm.p99_ms, "ms"),
            f"ttft_p50_ms_{run.label}": _figure(values.all.p50_ms, "ms"),
            f"ttft_p99_ms_{run.label}": _figure(values.all.p99_ms, "ms"),
            f"computed_tokens_{run.label}": _figure(values.tokens.computed, "tokens"),
            f"decode_tps_{run.label}": _figure(values.decode_tps, "tokens/s", higher=True),
            f"wall_s_{run.label}": _figure(run.replay.wall_s, "s"),
            f"peak_memory_mib_{run.label}": _figure(_mib(run), "MiB"),
        }
        if run.prefix_cache:
            found["hit_rate"] = _figure(values.tokens.hit_rate, "share", higher=True)
    on, off = by_cache(runs)
    if on and off:
        ratio = _ratio(on.summary.warm.p50_ms, off.summary.warm.p50_ms)
        found["warm_ttft_p50_ratio"] = _figure(ratio, "ratio", goal=WARM_TTFT_RATIO_GOAL)
    return {key: figure for key, figure in found.items() if figure is not None}


def _figure(
    value: float | None, unit: str, *, higher: bool = False, goal: float | None = None
) -> Figure | None:
    if value is None:
        return None
    return Figure(value, unit, "higher" if higher else "lower", goal)


def by_cache(runs: Sequence[Run]) -> tuple[Run | None, Run | None]:
    """The run with the cache and the run without, None for one that was not made."""
    on = next((run for run in runs if run.prefix_cache), None)
    return on, next((run for run in runs if not run.prefix_cache), None)


_ROWS: tuple[tuple[str, Callable[[Run], float | None]], ...] = (
    ("TTFT p50, warm turns (ms)", lambda run: run.summary.warm.p50_ms),
    ("TTFT p99, warm turns (ms)", lambda run: run.summary.warm.p99_ms),
    ("TTFT p50, first turns (ms)", lambda run: run.summary.cold.p50_ms),
    ("TTFT p99, first turns (ms)", lambda run: run.summary.cold.p99_ms),
    ("TTFT p50, all (ms)", lambda run: run.summary.all.p50_ms),
    ("TTFT p99, all (ms)", lambda run: run.summary.all.p99_ms),
    ("hit rate (cached / prompt)", lambda run: run.summary.tokens.hit_rate),
    ("prompt tokens", lambda run: run.summary.tokens.prompt),
    ("cached tokens", lambda run: run.summary.tokens.cached),
    ("computed tokens", lambda run: run.summary.tokens.computed),
    ("generated tokens", lambda run: run.summary.tokens.generated),
    ("decode speed (tokens/s a stream)", lambda run: run.summary.decode_tps),
    ("time between tokens (ms)", lambda run: run.summary.inter_token_ms),
    ("whole call p50 (ms)", lambda run: run.summary.call_ms),
    ("wall time (s)", lambda run: run.replay.wall_s),
    ("peak memory of the server (MiB)", _mib),
    ("start of the server (s)", lambda run: run.start_s),
)


def comparison_table(runs: Sequence[Run]) -> str:
    """One row a quantity: cache on, off, their ratio, and the ratio's goal where it has one."""
    goals = {_ROWS[0][0]: figures(runs).get("warm_ttft_p50_ratio")}
    rows = []
    for name, of in _ROWS:
        values = [of(run) for run in runs]
        row = [name, *(number(value) for value in values)]
        if len(runs) == 2:
            row += [number(_ratio(values[0], values[1]), 3), goal_text(goals.get(name))]
        rows.append(row)
    header = ["", *(f"cache {run.label}" for run in runs)]
    return table([*header, "ratio", "goal"] if len(runs) == 2 else header, rows)


def turns_table(runs: Sequence[Run]) -> str:
    """One row a turn: calls, prompt tokens, and per run the hit rate and times to first token."""
    header = ["turn", "calls", "prompt tokens"]
    for run in runs:
        header += [f"hit rate {run.label}", f"TTFT p50 {run.label} (ms)", f"p99 {run.label} (ms)"]
    turns = [{turn.turn: turn for turn in run.summary.turns} for run in runs]
    rows = []
    for n in sorted(set().union(*turns)):
        present = next(found[n] for found in turns if n in found)
        row = [str(n), str(present.ttft.calls), number(present.tokens.prompt)]
        for found in turns:
            row += _turn_cells(found.get(n))
        rows.append(row)
    return table(header, rows)


def _turn_cells(turn: Turn | None) -> list[str]:
    if turn is None:
        return ["-", "-", "-"]
    return [number(turn.tokens.hit_rate, 3), number(turn.ttft.p50_ms), number(turn.ttft.p99_ms)]


def run_data(run: Run) -> dict[str, object]:
    """All that a run measured, call by call, as JSON-able data."""
    return {
        "prefix_cache": run.prefix_cache,
        "cache_flushed_before": run.flushed,
        "complete": run.replay.failure is None,
        "failure": run.replay.failure,
        "sessions_ended_by_a_too_long_prompt": list(run.replay.too_long),
        "server": run.server,
        "server_start_s": run.start_s,
        "peak_memory_bytes": run.peak_memory_bytes,
        "counters_agree": None if run.differences is None else not run.differences,
        "counter_differences": list(run.differences or ()),
        "tokens": asdict(run.summary.tokens),
        "turns": [
            {
                "turn": turn.turn,
                "calls": turn.ttft.calls,
                "ttft_p50_ms": turn.ttft.p50_ms,
                "ttft_p99_ms": turn.ttft.p99_ms,
                "prompt_tokens": turn.tokens.prompt,
                "cached_tokens": turn.tokens.cached,
                "hit_rate": turn.tokens.hit_rate,
            }
            for turn in run.summary.turns
        ],
        "calls": [record_data(record) for record in run.replay.records],
    }
