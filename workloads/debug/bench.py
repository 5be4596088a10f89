"""bench-debug: what a look into a server with a large tree costs, and how long it takes."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from tqdm import tqdm

from radix_engine.model.errors import ModelError
from radix_engine.model.source import resolve_model
from workloads.debug.browser import Drawn, drawing
from workloads.debug.watching import STREAMS, Window, run_streams, tree_answers, window
from workloads.http.wire import BadAnswer
from workloads.option_types import at_least
from workloads.own_server import ServerFailed, free_port, own_server
from workloads.results import Figure, figures_table, number, table, write_results

NAME = "bench-debug"
NODES, STEP_MS, ROUNDS, SECONDS = 100_000, 5.0, 7, 4.0
WHO = ("nobody", "page", "tree")
TREE_GOAL_MS, TREE_GOAL_BYTES = 100.0, 1e6
FIRST_DRAW_GOAL_MS, UPDATE_GOAL_MS = 100.0, 30.0
P50_GOAL = 1.05
_LARGER, _LARGER_TIMES = 2000, 9


@dataclass(frozen=True, slots=True)
class Measured:
    """``rounds``: each a window of every kind, in turn. ``began``: when each step did, on the clock
    of the windows. ``larger``: seconds and bytes of /debug/tree with 2,000 nodes."""

    rounds: list[list[Window]]
    larger: list[tuple[float, int]]
    drawn: Drawn | None
    began: Sequence[float]


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-debug command with its options."""
    parser = commands.add_parser(
        NAME,
        help="what the debug page and /debug/tree cost a server with a large tree",
        description=f"Runs {STREAMS} streams on a server whose model takes a known time for each "
        "step, with a large tree. In turn nobody looks, somebody listens as the page does, and "
        "somebody asks for /debug/tree twice a second. Prints how long looks take and what they "
        f"do to the time from one step to the next, and writes {NAME}.json. How long the page "
        "takes to draw is measured where there is a chromium.",
    )
    options = (
        ("--nodes", NODES, "N", "nodes of the tree (default %(default)s)", True),
        ("--step-ms", STEP_MS, "MS", "the model's time for a step (default %(default)s ms)", False),
        ("--rounds", ROUNDS, "N", "rounds; a figure is their median (default %(default)s)", True),
        ("--seconds", SECONDS, "S", "of each part of a round (default %(default)s s)", False),
    )
    for name, default, metavar, text, whole in options:
        parser.add_argument(
            name, type=at_least(1, whole=whole), default=default, metavar=metavar, help=text
        )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id whose tokenizer is used (default: the server's default "
        "model)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results and the server's log (default %(default)s)",
    )
    return parser


def bench_debug(args: argparse.Namespace) -> int:
    """Measure, print and write; returns the exit status."""
    output: Path = args.output
    try:
        folder = resolve_model(args.model)
        with tempfile.TemporaryDirectory() as name:
            file, port = Path(name) / "began", free_port()
            command = [sys.executable, "-m", "workloads.debug.server", str(folder.path), str(port)]
            command += [str(args.nodes), str(args.step_ms), str(file)]
            with own_server(command, port, output / f"{NAME}-server.log") as server:
                rounds, larger = asyncio.run(_measure(port, args.rounds, args.seconds))
                drawn = drawing(server.url)
            began = array("d")
            began.frombytes(file.read_bytes())
    except (ModelError, ServerFailed, BadAnswer, OSError, ValueError) as error:
        print(f"{NAME}: FAILED: {error}", file=sys.stderr)
        return 1
    found = Measured(rounds, larger, drawn, began)
    figures = figures_of(found)
    settings = {"nodes": args.nodes, "step_ms": args.step_ms, "streams": STREAMS}
    data = {
        **settings,
        "rounds": [[_window_data(each, began) for each in part] for part in rounds],
        "drawn": None if drawn is None else asdict(drawn),
    }
    path = write_results(output, NAME, figures, data)
    if drawn is None:
        print("The page was not drawn: there is no chromium, or no playwright.")
    print(f"{rounds_table(found)}\n\n{figures_table(figures)}\nwritten: {path}")
    return 0


async def _measure(
    port: int, rounds: int, seconds: float
) -> tuple[list[list[Window]], list[tuple[float, int]]]:
    tasks = await run_streams(port)
    found = []
    await window(port, "page", seconds)  # what is told for the first time is decoded
    with tqdm(total=rounds * len(WHO), desc=NAME, unit="part") as progress:
        for turn in range(rounds):
            part = []
            for who in WHO if turn % 2 else reversed(WHO):
                part.append(await window(port, who, seconds))
                progress.update()
            found.append(part)
    larger = await tree_answers(port, f"?limit={_LARGER}", _LARGER_TIMES)
    for task in tasks:
        if task.done():
            task.result()
            raise ValueError("a stream has ended before the measurement")
        task.cancel()
    return found, larger


def figures_of(found: Measured) -> dict[str, Figure]:
    """The figures: medians over the rounds, and over all answers."""
    windows = [each for part in found.rounds for each in part]
    trees = [each for one in windows for each in one.trees]
    updates = [size for one in windows for size in one.updates[1:]]
    figures = {
        "tree_p50_ms": _median_ms(trees, TREE_GOAL_MS),
        "tree_longest_ms": Figure(1e3 * max(s for s, _ in trees), "ms", "lower", TREE_GOAL_MS),
        "tree_bytes": Figure(max(size for _, size in trees), "B", "lower", TREE_GOAL_BYTES),
        "tree_2000_p50_ms": _median_ms(found.larger, None),
        "tree_2000_bytes": Figure(
            max(size for _, size in found.larger), "B", "lower", TREE_GOAL_BYTES
        ),
        "update_bytes": Figure(float(statistics.median(updates)), "B", "lower"),
    }
    if found.drawn is not None:
        update = float(statistics.median(found.drawn.updates_ms))
        figures["first_draw_ms"] = Figure(found.drawn.first_ms, "ms", "lower", FIRST_DRAW_GOAL_MS)
        figures["update_draw_ms"] = Figure(update, "ms", "lower", UPDATE_GOAL_MS)
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        for who in WHO:
            value = statistics.median(_steps(found, who, share))
            figures[f"step_{name}_{who}_ms"] = Figure(value, "ms", "lower")
    for share, name, goal in ((0.5, "p50", P50_GOAL), (0.99, "p99", None)):
        for who in WHO[1:]:
            pairs = zip(_steps(found, who, share), _steps(found, "nobody", share), strict=True)
            ratio = statistics.median(one / alone for one, alone in pairs)
            figures[f"step_{name}_{who}_ratio"] = Figure(ratio, "", "lower", goal)
    return figures


def step_ms(one: Window, began: Sequence[float]) -> list[float]:
    """Milliseconds from each step to the next within a window, sorted."""
    inside = [at for at in began if one.start <= at <= one.end]
    return sorted(1e3 * (after - before) for before, after in pairwise(inside))


def rounds_table(found: Measured) -> str:
    """A line for each window."""
    lines = []
    for part in found.rounds:
        for one in part:
            steps = step_ms(one, found.began)
            cells = [number(at(steps, share)) for share in (0.5, 0.99, 1.0)]
            lines.append((one.who, str(len(steps)), *cells))
    return table(("who looks", "steps", "p50 ms", "p99 ms", "longest ms"), lines)


def at(values: Sequence[float], share: float) -> float:
    """The value below which this share of sorted values lies."""
    return values[min(len(values) - 1, int(share * len(values)))]


def _steps(found: Measured, who: str, share: float) -> list[float]:
    """A percentile of each round."""
    windows = [one for part in found.rounds for one in part if one.who == who]
    return [at(step_ms(one, found.began), share) for one in windows]


def _median_ms(answers: Sequence[tuple[float, int]], goal: float | None) -> Figure:
    return Figure(1e3 * statistics.median(s for s, _ in answers), "ms", "lower", goal)


def _window_data(one: Window, began: Sequence[float]) -> dict[str, object]:
    steps = step_ms(one, began)
    return {
        "who": one.who,
        "steps": len(steps),
        "p50_ms": at(steps, 0.5),
        "p99_ms": at(steps, 0.99),
        "longest_ms": steps[-1],
        "tree_ms": [round(1e3 * seconds, 2) for seconds, _ in one.trees],
        "update_bytes": one.updates,
    }
