"""bench-startup: how long a second start of the server takes, and what it takes when idle."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from workloads.cpu.processes import tree_cpu_s
from workloads.own_server import ServerFailed, free_port, own_server, server_command
from workloads.results import Figure, figures_table, write_results

NAME = "bench-startup"
SECOND_START_GOAL_S = 8.0
STARTS = 3
POLL_S = 0.02
IDLE_GOAL_PERCENT = 1.0
SETTLE_S = 10.0  # in which what the start has left behind is collected
IDLE_S = 20.0


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-startup command with its options."""
    parser = commands.add_parser(
        NAME,
        help="time from the server's command to ready, on a second start; and its idle load",
        description="Starts the server once untimed, so that the model is there, then "
        f"{STARTS} times from the command to the first 200 of /ready (asked every "
        f"{POLL_S * 1000:.0f} ms), and watches for {IDLE_S:.0f} s how much of a core the last one "
        f"takes while nobody asks it anything. Prints the median and that and writes {NAME}.json.",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id for the server (default: the server's default model)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results and server logs (default %(default)s)",
    )
    return parser


def bench_startup(
    output: Path,
    command: Callable[[int], Sequence[str]],
    settle_s: float = SETTLE_S,
    idle_s: float = IDLE_S,
) -> int:
    """Measure, print and write; returns the exit status.

    ``command`` gives the server's command line for a port. The last server is left alone for
    ``settle_s`` and then watched for ``idle_s`` seconds.
    """
    times: list[float] = []
    idle_percent = 0.0
    try:
        for index in tqdm(range(1 + STARTS), desc="server starts", unit="start"):
            port, log = free_port(), output / f"{NAME}-server-{index}.log"
            with own_server(command(port), port, log, poll_s=POLL_S) as server:
                assert server.ready_s is not None
                assert server.pid is not None
                times.append(server.ready_s)
                if index == STARTS:
                    time.sleep(settle_s)
                    idle_percent = _load_percent(server.pid, idle_s)
    except ServerFailed as error:
        print(f"{NAME}: FAILED: {error}", file=sys.stderr)
        return 1
    figures = {
        "second_start_s": Figure(statistics.median(times[1:]), "s", "lower", SECOND_START_GOAL_S),
        "idle_cpu_percent": Figure(idle_percent, "% of a core", "lower", IDLE_GOAL_PERCENT),
    }
    data = {"untimed_start_s": times[0], "starts_s": times[1:]}
    path = write_results(output, NAME, figures, data)
    starts = ", ".join(f"{seconds:.2f}" for seconds in times[1:])
    print(f"{figures_table(figures)}\nstarts: {starts} s\nwritten: {path}")
    return 0


def startup_command(model: str | None) -> Callable[[int], Sequence[str]]:
    """The command line of a server of ours with this model (None: its default)."""
    options = [] if model is None else ["--model", model]
    return lambda port: server_command(port, options)


def _load_percent(pid: int, seconds: float) -> float:
    """How much of a core a process and its children take in the next seconds."""
    before, start = tree_cpu_s(pid), time.perf_counter()
    time.sleep(seconds)
    return 100 * (tree_cpu_s(pid) - before) / (time.perf_counter() - start)
