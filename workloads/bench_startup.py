"""bench-startup: how long a second start of the server takes, from command to ready."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from workloads.own_server import ServerFailed, free_port, own_server, server_command
from workloads.results import Figure, figures_table, write_results

NAME = "bench-startup"
SECOND_START_GOAL_S = 8.0
STARTS = 3
POLL_S = 0.02


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-startup command with its options."""
    parser = commands.add_parser(
        NAME,
        help="time from the server's command to ready, on a second start",
        description="Starts the server once untimed, so that the model is there, then "
        f"{STARTS} times from the command to the first 200 of /ready (asked every "
        f"{POLL_S * 1000:.0f} ms). Prints the median and writes {NAME}.json.",
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


def bench_startup(output: Path, command: Callable[[int], Sequence[str]]) -> int:
    """Measure, print and write; returns the exit status.

    ``command`` gives the server's command line for a port.
    """
    times: list[float] = []
    try:
        for index in tqdm(range(1 + STARTS), desc="server starts", unit="start"):
            times.append(_timed_start(command, output / f"{NAME}-server-{index}.log"))
    except ServerFailed as error:
        print(f"{NAME}: FAILED: {error}", file=sys.stderr)
        return 1
    figures = {
        "second_start_s": Figure(statistics.median(times[1:]), "s", "lower", SECOND_START_GOAL_S)
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


def _timed_start(command: Callable[[int], Sequence[str]], log: Path) -> float:
    port = free_port()
    with own_server(command(port), port, log, poll_s=POLL_S) as server:
        assert server.ready_s is not None
        return server.ready_s
