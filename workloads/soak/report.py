"""What a soak came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads.results import Figure, table
from workloads.soak.tally import Tally
from workloads.soak.watch import Watched, growth_per_minute

LONG_S = 120.0
"""From here on growth can be told from the noise of what the allocator keeps."""

GROWTH_GOAL_KIB = 4.0
"""A request: what the server remembers of each within its bounds. One that was kept takes more."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The server once all have their answers. ``leaked_blocks``: neither free nor evictable;
    ``busy``: requests that still run or wait; ``problems``: the lines of its audit."""

    leaked_blocks: int
    busy: int
    problems: tuple[str, ...]


def idle_of(info: Mapping[str, Any], audit: Mapping[str, Any]) -> Idle:
    """From the bodies of /server_info and /debug/audit."""
    state = info["state"]
    left = info["kv"]["blocks"] - state["blocks_free"] - state["blocks_evictable"]
    return Idle(left, state["running"] + state["waiting"], tuple(audit["problems"]))


def figures_of(tally: Tally, watched: Watched, idle: Idle, seconds: float) -> dict[str, Figure]:
    """The figures with their goals."""
    total = tally.requests.total()
    figures = {
        "soak_requests": Figure(total, "requests", "higher"),
        "soak_requests_per_s": Figure(total / seconds, "1/s", "higher"),
        "soak_aborts": Figure(tally.aborts, "requests", "higher"),
        "soak_refused_busy": Figure(tally.busy.total(), "requests", "lower"),
        "soak_errors": Figure(tally.errors.total(), "requests", "lower", 0),
        "soak_compared": Figure(tally.compared, "answers", "higher"),
        "soak_wrong_answers": Figure(tally.wrong, "answers", "lower", 0),
        "soak_leaked_blocks": Figure(idle.leaked_blocks, "blocks", "lower", 0),
        "soak_unfinished_requests": Figure(idle.busy, "requests", "lower", 0),
        "soak_audit_problems": Figure(len(idle.problems), "lines", "lower", 0),
    }
    growth = growth_per_minute(watched.seconds, watched.rss_bytes)
    if growth is not None and total:
        figures["soak_memory_mib_per_min"] = Figure(growth, "MiB/min", "lower")
        each = growth * 1024 / (60 * total / seconds)
        goal = GROWTH_GOAL_KIB if seconds >= LONG_S else None
        figures["soak_memory_kib_per_request"] = Figure(each, "KiB", "lower", goal)
    if watched.probes_s:
        slowest = 1e3 * max(watched.probes_s)
        figures["soak_slowest_health_ms"] = Figure(slowest, "ms", "lower")
    return figures


def counts_table(tally: Tally) -> str:
    """Requests, refusals and errors by kind."""
    rows = [
        (f"{name}: {kind}", f"{count:,}")
        for name in ("requests", "busy", "errors")
        for kind, count in sorted(getattr(tally, name).items())
    ]
    return table(("kind", "count"), rows)
