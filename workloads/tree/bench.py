"""bench-tree: what the prefix tree's operations cost as it grows, its memory and its pauses."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from radix_engine.cache import RULES
from workloads.results import figures_table, write_results
from workloads.tree import report
from workloads.tree.build import (
    GHOSTS_PER_BLOCK,
    LEAVES_PER_HEAD,
    empty_tree,
    make_ghosts,
    store_leaves,
)
from workloads.tree.churn import Churn, fill
from workloads.tree.memory import Footprint, footprint, long_runs
from workloads.tree.operations import OPERATIONS, ROUNDS, Paths, lay_paths, measure, room_needed
from workloads.tree.pauses import run

NAME = "bench-tree"
LEAVES = (1_000, 10_000, 40_000, 100_000)
SECONDS = 60.0
LONG_RUNS = 2_000  # runs of 1,024 tokens whose memory is measured
FEWEST_LEAVES = 1_000  # in a smaller tree all are gone before the evictions have been timed

Footprints = dict[int, tuple[Footprint, Footprint]]
"""By leaves: without ghosts, and with as many as the cache keeps."""


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-tree command with its options."""
    parser = commands.add_parser(
        NAME,
        help="cost of the prefix tree's operations, its memory and its longest pause",
        description="Times each operation of the prefix tree in trees of several sizes "
        "(microseconds), adds up its Python memory (bytes), and looks for the longest single "
        "operation (milliseconds) while the largest tree is in use. Needs no model and no server. "
        f"Prints tables and writes {NAME}.json and {NAME}.png. Takes a minute or two more than "
        "--seconds, and 2 GiB.",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=SECONDS,
        metavar="S",
        help="seconds of use in which the longest pause is looked for (default %(default)g)",
    )
    parser.add_argument(
        "--leaves",
        type=_leaves,
        default=list(LEAVES),
        nargs="+",
        metavar="N",
        help=f"sizes of the trees, in leaves of 16 tokens, each {FEWEST_LEAVES:,} or more; figures "
        f"of other sizes are left out (default {' '.join(map(str, LEAVES))})",
    )
    parser.add_argument(
        "--eviction",
        choices=list(RULES),
        default="lru",
        help=f"the eviction rule; of another than lru, {NAME}-RULE.json is written (default lru)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for the results (default %(default)s)",
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no time above 0 seconds")
    return seconds


def _leaves(text: str) -> int:
    leaves = int(text)
    if leaves < FEWEST_LEAVES:
        raise argparse.ArgumentTypeError(f"{text} leaves; at least {FEWEST_LEAVES} are needed")
    return leaves


def bench_tree(
    output: Path,
    sizes: Sequence[int],
    seconds: float,
    runs: int = LONG_RUNS,
    rounds: int = ROUNDS,
    eviction: str = "lru",
) -> int:
    """Measure, print and write; returns the exit status.

    ``runs``: how many long runs to measure the memory of; ``rounds``: of operations.
    """
    sizes = sorted(set(sizes))
    samples, footprints = _operations(sizes, rounds, eviction)
    with _bar("runs of 1,024 tokens", (1 + GHOSTS_PER_BLOCK) * runs, "run") as progress:
        runs_memory = long_runs(runs, progress)
    churn = Churn(sizes[-1], eviction=eviction)
    with _bar("leaves to use", sizes[-1], "leaf") as progress:
        fill(churn, progress)
    with _bar("in use", seconds, "s") as progress:
        in_use = run(churn, seconds, progress)
    medians = {
        size: {name: statistics.median(values) for name, values in taken.items()}
        for size, taken in samples.items()
    }
    memory = {
        **{f"leaves of 16 tokens, {size:,}": pair for size, pair in footprints.items()},
        f"runs of 1,024 tokens, {runs:,}": runs_memory,
    }
    figures = report.make_figures(medians, runs_memory[1].per_token, in_use.longest_ms)
    data = {
        "notes": report.NOTES,
        "operations": {
            size: {name: report.spread_of(values) for name, values in taken.items()}
            for size, taken in samples.items()
        },
        "growth": report.growth(medians, sizes[0], sizes[-1]),
        "memory": {
            name: {"without_ghosts": fresh.data(), "with_ghosts": grown.data()}
            for name, (fresh, grown) in memory.items()
        },
        "churn": asdict(in_use),
    }
    name = NAME if eviction == "lru" else f"{NAME}-{eviction}"
    path = write_results(output, name, figures, data)
    plot = output / f"{name}.png"
    _draw(medians, plot)
    print(f"\n{report.operations_table(medians)}\n\n{report.memory_table(memory)}\n")
    print(f"{report.churn_table(in_use)}\n\n{figures_table(figures)}")
    if left_out := [key for key in report.FIGURES if key not in figures]:
        print(f"not measured with these sizes: {', '.join(left_out)}")
    print(f"written: {path}, {plot}", flush=True)
    return 0


def _operations(
    sizes: Sequence[int], rounds: int, eviction: str
) -> tuple[dict[int, dict[str, list[float]]], Footprints]:
    """Grow a tree of each size; microseconds of each operation, and the trees' memory."""
    footprints: Footprints = {}
    grown: list[Paths] = []
    leaves = sum(sizes)
    total = leaves * (1 + GHOSTS_PER_BLOCK) + 2 * GHOSTS_PER_BLOCK * (leaves // LEAVES_PER_HEAD)
    with _bar("leaves to measure", total, "leaf") as progress:
        for size in sizes:
            tree = empty_tree(size, room_needed(rounds), eviction=eviction)
            store_leaves(tree, progress)
            fresh = footprint(tree.cache, size)
            make_ghosts(tree, progress)
            footprints[size] = fresh, footprint(tree.cache, size)
            grown.append(lay_paths(tree, rounds))
    with _bar("operations", rounds * len(sizes), "round") as progress:
        samples = measure(grown, rounds, progress)
    return dict(zip(sizes, samples, strict=True)), footprints


@contextmanager
def _bar(what: str, total: float, unit: str) -> Iterator[Callable[[float], object]]:
    with tqdm(desc=what, total=total, unit=unit, unit_scale=unit != "round") as bar:
        yield bar.update


def _draw(medians: Mapping[int, Mapping[str, float]], path: Path) -> None:
    # Imported here: it takes a second and only a finished run needs it.
    from workloads.tree.plot import draw

    sizes = sorted(medians)
    lines = {op.label: [medians[size][op.name] for size in sizes] for op in OPERATIONS}
    draw(sizes, lines, "Prefix tree: cost of an operation as the tree grows", path)
