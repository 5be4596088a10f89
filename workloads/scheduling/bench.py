"""bench-scheduler: what the scheduler costs as its queue grows, and what its order is worth."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from workloads.option_types import at_least
from workloads.results import Figure, figures_table, table, write_results
from workloads.scheduling.queue_load import OWN_TOKENS, PROMPT_TOKENS, STEP_REQUESTS, QueueLoad
from workloads.scheduling.queue_timing import DECODING, decode_times, shared_head_times, step_times
from workloads.simulation import report as sim_report
from workloads.simulation.orders import Simulated, draw_simulated, simulate_default
from workloads.tree.pauses import collector_as_in_the_server

NAME = "bench-scheduler"
WAITING = (128, 1_000, 10_000)
STEPS = 40  # with each timing
SHARED_ROUNDS = 6
DECODE_STEPS = 200

TIGHT = "tight_memory"
TIGHT_SHARE = 0.1  # of the distinct tokens

LABELS = {
    "order": "order: 64 leave, 64 arrive",
    "shared": "order: a shared head is stored",
    "plan": "a step's plan, 64 admitted",
    "commit": "a step's commit",
}
NOTES = (
    f"waiting: prompts of {PROMPT_TOKENS:,} tokens, {OWN_TOKENS} of them new, over 1,040,896 "
    "cached ones of 120 conversations; every step admits 64, which end with it, stores 256 blocks "
    "and evicts as many, and 64 arrive; milliseconds of wall time, medians",
    "order: all time in the queue's methods, look-ups for arrivals included; plan: the whole plan, "
    "the queue's part included",
    f"decode: {DECODING} requests with about 1,100 tokens each; plan, spans and flat arrays, "
    "commit and the check of the blocks' sum; the kernels' own index tables are not in it",
    "the other figures are those of simulate's default load, whose memory holds all heads; "
    f"{TIGHT}_...: the same requests in memory for a tenth of the distinct tokens",
)
GOALS = {"order_10k_ms": 1.0, "admit_64_of_10k_ms": 2.0, "step_host_256_running_ms": 1.0}

Medians = Mapping[int, Mapping[str, float]]
"""Milliseconds by waiting requests and by kind."""


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-scheduler command with its options."""
    parser = commands.add_parser(
        NAME,
        help="cost of the scheduler as its queue grows, and what its order is worth",
        description="Times the order of the waiting requests, admission and a step of 256 decoding "
        "requests (milliseconds), then simulates orders on the default load of simulate. Needs no "
        f"model and no server. Prints tables and writes {NAME}.json, {NAME}.png and two plots of "
        "the orders. Takes about a minute and, for 10,000 waiting, 3 GiB.",
    )
    parser.add_argument(
        "--waiting",
        type=at_least(2 * STEP_REQUESTS, whole=True),
        nargs="+",
        default=list(WAITING),
        metavar="N",
        help="lengths of the queue, in requests; figures of other lengths are left out (default "
        f"{' '.join(map(str, WAITING))})",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results and plots (default %(default)s)",
    )
    return parser


def bench_scheduler(
    output: Path, lengths: Sequence[int], steps: int = STEPS, *, simulated: bool = True
) -> int:
    """Measure, print and write; returns the exit status. ``steps``: that are timed."""
    lengths = sorted({int(length) for length in lengths})
    medians: dict[int, dict[str, float]] = {}
    samples: dict[int, dict[str, list[float]]] = {}
    for length in lengths:
        samples[length] = _queue_samples(length, steps)
        medians[length] = {kind: statistics.median(v) for kind, v in samples[length].items()}
    with collector_as_in_the_server():
        decode = decode_times(steps * 5)
    decode_medians = {kind: statistics.median(values) for kind, values in decode.items()}
    orders = {"": simulate_default(), TIGHT: simulate_default(TIGHT_SHARE)} if simulated else {}
    figures = make_figures(medians, decode_medians, orders)
    data = {
        "notes": NOTES,
        "queue_ms": {length: _spreads(kinds) for length, kinds in samples.items()},
        "decode_ms": _spreads(decode),
        "orders": {
            memory or "memory": {name: sim_report.row_data(row) for name, row in found.rows.items()}
            for memory, found in orders.items()
        },
    }
    path = write_results(output, NAME, figures, data)
    print(f"\n{_queue_table(medians)}\n\n{_decode_table(decode_medians)}\n")
    for memory, found in orders.items():
        share = f"memory for {TIGHT_SHARE if memory else 0.25:g} of the distinct tokens"
        print(f"{share}\n{sim_report.rows_table(found.rows)}\n")
        plot = f"{NAME}-orders{'-tight' if memory else ''}.png"
        draw_simulated(found, f"2,000 simulated requests, load 1.3, {share}", output / plot)
    _draw(medians, output / f"{NAME}.png")
    print(f"{figures_table(figures)}\nwritten: {path}, {output / NAME}.png", flush=True)
    return 0


def make_figures(
    medians: Medians, decode: Mapping[str, float], orders: Mapping[str, Simulated]
) -> dict[str, Figure]:
    """The named figures, without those that were not measured. ``orders``: by what their figures'
    names begin with."""
    values = {"step_host_256_running_ms": sum(decode.values())}
    if 10_000 in medians:
        values["order_10k_ms"] = max(medians[10_000]["order"], medians[10_000]["shared"])
        values["admit_64_of_10k_ms"] = medians[10_000]["plan"]
    figures = {
        key: Figure(values[key], "ms", "lower", GOALS[key]) for key in GOALS if key in values
    }
    for memory, found in orders.items():
        named = sim_report.named_figures(found.rows, found.best_order, goals=not memory)
        figures |= {f"{memory}_{key}" if memory else key: named[key] for key in named}
    return figures


def _queue_samples(length: int, steps: int) -> dict[str, list[float]]:
    with _bar(f"{length:,} waiting", 2 * length + SHARED_ROUNDS, "request") as progress:
        load = QueueLoad(length, progress)
        with collector_as_in_the_server() as (collector, _):
            times = step_times(load, steps, collector.between_steps)
        del load
        times["shared"] = shared_head_times(length, SHARED_ROUNDS, progress)
    return times


def _spreads(kinds: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    return {
        kind: {"median": statistics.median(values), "longest": max(values), "steps": len(values)}
        for kind, values in kinds.items()
    }


def _queue_table(medians: Medians) -> str:
    rows = [
        (label, *(f"{medians[length][kind]:.3g}" for length in medians))
        for kind, label in LABELS.items()
    ]
    return table(("ms (median) at waiting", *(f"{length:,}" for length in medians)), rows)


def _decode_table(decode: Mapping[str, float]) -> str:
    rows = [(kind, f"{value:.3g}") for kind, value in decode.items()]
    return table((f"ms a step, {DECODING} decoding", "median"), rows)


@contextmanager
def _bar(what: str, total: float, unit: str) -> Iterator[Callable[[float], object]]:
    with tqdm(desc=what, total=total, unit=unit, unit_scale=True) as bar:
        yield bar.update


def _draw(medians: Medians, path: Path) -> None:
    # Imported here: it takes a second and only a finished run needs it.
    from workloads.tree.plot import draw

    lengths = sorted(medians)
    lines = {
        label: [1000 * medians[length][kind] for length in lengths]
        for kind, label in LABELS.items()
    }
    title = "Scheduler: cost of a step as the queue grows"
    draw(lengths, lines, title, path, sizes="waiting requests")
