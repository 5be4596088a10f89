"""recency-vs-optimum: how far is least recently used from the best that any rule can do?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from workloads.experiments.experiment import Experiment, Outcome, Settings
from workloads.experiments.made import requests_of, serial_calls
from workloads.experiments.panel import Line, Panel
from workloads.experiments.recorded import recorded_calls
from workloads.generators.catalogue import planned
from workloads.results import Figure, table
from workloads.simulation.optimum import Optimum
from workloads.simulation.serial import SerialCache
from workloads.simulation.serial_calls import SerialCall, hit_rate

BLOCK = 16
SIZES = 9  # from the longest call to all that is different
TOKEN_S = 0.02  # a token of a reply, so that sessions overlap
NAMES = (
    "multi-prefix-zipf",
    "loop",
    "one-off-flood",
    "few-shot",
    "tree-of-thought",
    "agents",
)
RULES = ("lru", "agent", "optimum")


def run(
    settings: Settings,
    names: Sequence[str] = NAMES,
    num_sizes: int = SIZES,
    scale: float = 1.0,
) -> Outcome:
    """Serve each workload, one call at a time, from memory for its longest call up to all its
    different blocks."""
    figures: dict[str, Figure] = {}
    rates: dict[str, dict[str, list[float]]] = {}
    sizes: dict[str, list[int]] = {}
    panels, rows = [], []
    for name, calls, distinct, block_tokens in _workloads(settings, names, scale):
        least = max(len(call.path) for call in calls)
        steps = np.geomspace(least, max(least, distinct), num_sizes)
        sizes[name] = sorted({round(size) for size in steps})
        rates[name] = {rule: [] for rule in RULES}
        for blocks in sizes[name]:
            for rule in RULES:
                rate = hit_rate(calls, _hits(calls, rule, blocks), block_tokens)
                rates[name][rule].append(rate)
                figures[f"hit_rate.{name}.{rule}.{blocks}"] = Figure(rate, "share", "higher")
        rows += [
            [f"{name}, {blocks:,} blocks", *(f"{rates[name][rule][at]:.3f}" for rule in RULES)]
            for at, blocks in enumerate(sizes[name])
        ]
        held = [blocks * block_tokens for blocks in sizes[name]]
        lines = [Line(rule, held, rates[name][rule]) for rule in RULES if rule != "optimum"]
        best = Line("optimum", held, rates[name]["optimum"], "ceiling")
        panels.append(
            Panel(
                name,
                "memory, tokens (logarithmic)",
                "prompt tokens served",
                [*lines, best],
                log_x=True,
                percent_y=True,
            )
        )
    return Outcome(
        figures,
        {"sizes": sizes, "hit_rates": rates},
        table(["workload and memory", *RULES], rows),
        "one call at a time: eviction rules beside the best that knows all later calls",
        panels,
    )


def _workloads(
    settings: Settings, names: Sequence[str], scale: float
) -> Iterator[tuple[str, list[SerialCall], int, int]]:
    """Name, calls, how many different blocks they have, and tokens of a block."""
    for name in names:
        plan = planned(name, settings.seed, scale=scale)
        requests = requests_of(plan, settings.seed, token_s=TOKEN_S)
        calls, distinct = serial_calls(requests, BLOCK)
        yield name, calls, distinct, BLOCK
    if settings.trace is not None:
        calls, distinct, block_tokens = recorded_calls(settings.trace, BLOCK, settings.seed)
        yield _title(settings.trace), calls, distinct, block_tokens


def _hits(calls: Sequence[SerialCall], rule: str, blocks: int) -> list[int]:
    if rule == "optimum":
        return Optimum(calls, blocks).hits()
    return SerialCache(blocks, rule).hits(calls)


def _title(path: Path) -> str:
    return f"{path.parent.name}/{path.name.split('.')[0]}"


EXPERIMENT = Experiment(
    "how far is least recently used from the best there is?", run, frozenset({"trace"})
)
