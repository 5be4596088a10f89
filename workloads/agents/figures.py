"""An agent benchmark's figures under their fixed keys, and all that it measured as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from workloads.agents.compared import Of, Result, pair_ratio, results, results_by_rate
from workloads.agents.measures import record_data
from workloads.agents.run import Run
from workloads.agents.slo import Slo, highest_rate
from workloads.results import Figure

# A warm turn computes little more than a tool result, so it has to start at least 3 times sooner.
WARM_TTFT_RATIO_GOAL = 0.333
MIB = 2**20


def peak_mib(run: Run) -> float | None:
    """A server's peak memory in MiB."""
    return None if run.peak_memory_bytes is None else run.peak_memory_bytes / MIB


# Key, unit, which way is better.
_KEYS: tuple[tuple[str, str, bool, Of], ...] = (
    ("warm_ttft_p50_ms", "ms", False, lambda run: run.summary.warm.p50_ms),
    ("warm_ttft_p99_ms", "ms", False, lambda run: run.summary.warm.p99_ms),
    ("ttft_p50_ms", "ms", False, lambda run: run.summary.all.p50_ms),
    ("ttft_p99_ms", "ms", False, lambda run: run.summary.all.p99_ms),
    ("computed_tokens", "tokens", False, lambda run: run.summary.tokens.computed),
    ("decode_tps", "tokens/s", True, lambda run: run.summary.decode_tps),
    ("wall_s", "s", False, lambda run: run.replay.wall_s),
    ("peak_memory_mib", "MiB", False, peak_mib),
)


def figures(runs: Sequence[Run], slo: Slo) -> dict[str, Figure]:
    """The figures under their fixed keys. What was not measured has no key."""
    swept = results_by_rate(runs)
    return _sweep_figures(swept, slo) if swept else _plain_figures(results(runs), slo)


def _plain_figures(found: Sequence[Result], slo: Slo) -> dict[str, Figure]:
    measured: dict[str, Figure | None] = {}
    for result in found:
        name = result.target
        for key, unit, higher, of in _KEYS:
            measured[f"{key}_{name}"] = _figure(result.value(of), unit, higher=higher)
        hit_rate = _figure(result.value(_hit_rate), "share", higher=True)
        if name == "on" or (len(found) == 1 and name != "off"):
            measured["hit_rate"] = hit_rate
        if name not in ("on", "off"):
            measured[f"hit_rate_{name}"] = hit_rate
        measured[f"slo_share_{name}"] = _figure(result.share(slo), "share", higher=True)
    by_name = {result.target: result for result in found}
    if "on" in by_name and "off" in by_name:
        ratio = pair_ratio(_warm_ttft, by_name["on"], by_name["off"])
        measured["warm_ttft_p50_ratio"] = _figure(ratio, "ratio", goal=WARM_TTFT_RATIO_GOAL)
    return {key: figure for key, figure in measured.items() if figure is not None}


def _sweep_figures(swept: dict[float, list[Result]], slo: Slo) -> dict[str, Figure]:
    measured: dict[str, Figure | None] = {}
    for rate, found in swept.items():
        for result in found:
            at = f"{result.target}_at_{rate:g}"
            p99 = result.value(lambda run: run.summary.all.p99_ms)
            measured[f"slo_share_{at}"] = _figure(result.share(slo), "share", higher=True)
            measured[f"ttft_p99_ms_{at}"] = _figure(p99, "ms")
    for name, best in highest_rates(swept, slo).items():
        measured[f"slo_rate_{name}"] = _figure(best, "sessions/s", higher=True)
    return {key: figure for key, figure in measured.items() if figure is not None}


def highest_rates(swept: dict[float, list[Result]], slo: Slo) -> dict[str, float | None]:
    """By target, the highest rate up to which the share of the limits is kept."""
    shares: dict[str, dict[float, float | None]] = {}
    for rate, found in swept.items():
        for result in found:
            shares.setdefault(result.target, {})[rate] = result.share(slo)
    return {name: highest_rate(by_rate, slo.share) for name, by_rate in shares.items()}


def _hit_rate(run: Run) -> float | None:
    return run.summary.tokens.hit_rate


def _warm_ttft(run: Run) -> float | None:
    return run.summary.warm.p50_ms


def _figure(
    value: float | None, unit: str, *, higher: bool = False, goal: float | None = None
) -> Figure | None:
    if value is None:
        return None
    return Figure(value, unit, "higher" if higher else "lower", goal)


def run_key(run: Run) -> str:
    """A run's name in the data: its target, with the rate and the round where there are several."""
    at_rate = "" if run.leg.rate is None else f" at {run.leg.rate:g}/s"
    return f"{run.label}{at_rate}" + (f", round {run.leg.round + 1}" if run.leg.round else "")


def run_data(run: Run) -> dict[str, object]:
    """All that a run measured, call by call, as JSON-able data."""
    return {
        "prefix_cache": run.prefix_cache,
        "cache_flushed_before": run.emptied,
        "complete": run.replay.failure is None,
        "failure": run.replay.failure,
        "resumed_after_calls": list(run.resumed_after),
        "sessions_ended_by_a_too_long_prompt": list(run.replay.too_long),
        "turns_refused_by_a_busy_server": run.replay.refused_turns,
        "server": dict(run.server),
        "server_start_s": run.start_s,
        "peak_memory_bytes": run.peak_memory_bytes,
        "counters_agree": None if run.differences is None else not run.differences,
        "counter_differences": list(run.differences or ()),
        "wall_s": run.replay.wall_s,
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
