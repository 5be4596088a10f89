"""bench-http: what the HTTP side adds to a request, beside a bare uvicorn application."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from workloads.http.path_load import Timing, chat_body, closed_load
from workloads.option_types import at_least
from workloads.own_server import ServerFailed, free_port, own_server
from workloads.results import Figure, figures_table, number, table, write_results

NAME = "bench-http"
CLIENTS = (1, 16, 64)
ADDED_P50_GOAL_MS = 3.0
ROUNDS, SECONDS = 7, 1.0
SERVERS = ("ours", "bare")


@dataclass(frozen=True, slots=True)
class Case:
    """One load, which both servers get."""

    stream: bool
    clients: int

    @property
    def name(self) -> str:
        """As it stands in the names of figures."""
        return f"{'streamed' if self.stream else 'whole'}_{self.clients}"


CASES = tuple(Case(stream, clients) for stream in (False, True) for clients in CLIENTS)
Timings = Mapping[Case, Mapping[str, Sequence[Timing]]]


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-http command with its options."""
    parser = commands.add_parser(
        NAME,
        help="what the HTTP side of the server adds to a request, without a model",
        description="Serves chats with an engine that has its answer at once, and beside it the "
        "same bytes from a bare uvicorn application. Both get the same loads in turn: "
        f"{', '.join(map(str, CLIENTS))} clients that ask again as soon as they are answered, "
        f"whole and streamed. Prints both and writes {NAME}.json.",
    )
    parser.add_argument(
        "--rounds",
        type=at_least(1, whole=True),
        default=ROUNDS,
        metavar="N",
        help="rounds; a figure is the median over them (default %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=at_least(0.05),
        default=SECONDS,
        metavar="S",
        help="how long each load lasts (default %(default)s s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results and server logs (default %(default)s)",
    )
    return parser


def bench_http(output: Path, rounds: int, seconds: float) -> int:
    """Measure, print and write; returns the exit status."""
    try:
        with ExitStack() as stack:
            ports = {which: free_port() for which in SERVERS}
            for which, port in ports.items():
                log = output / f"{NAME}-{which}.log"
                stack.enter_context(own_server(_command(which, port), port, log))
            timings = _measure(ports, rounds, seconds)
    except (ServerFailed, OSError, EOFError) as error:
        print(f"{NAME}: FAILED: {error}", file=sys.stderr)
        return 1
    figures = figures_of(timings)
    data = {
        case.name: {which: [asdict(each) for each in of_server[which]] for which in SERVERS}
        for case, of_server in timings.items()
    }
    path = write_results(output, NAME, figures, data)
    print(f"{_side_by_side(timings)}\n\n{figures_table(figures)}\nwritten: {path}")
    return 0


def figures_of(timings: Timings) -> dict[str, Figure]:
    """The figures: medians over the rounds; what is added is of each round, whose two loads ran
    right after one another."""
    figures = {}
    for share, goal in (("p50", ADDED_P50_GOAL_MS), ("p99", None)):
        alone = [_added(timings[case], share) for case in timings if case.clients == 1]
        figures[f"http_added_{share}_ms"] = Figure(max(alone), "ms", "lower", goal)
    for case, of_server in timings.items():
        for share in ("p50", "p99"):
            added = _added(of_server, share)
            figures[f"http_added_{share}_{case.name}_ms"] = Figure(added, "ms", "lower")
        rates = {which: _median(of_server[which], "per_second") for which in SERVERS}
        figures[f"http_{case.name}_rps"] = Figure(rates["ours"], "1/s", "higher")
        figures[f"http_{case.name}_bare_rps"] = Figure(rates["bare"], "1/s", "higher")
    return figures


def _command(which: str, port: int) -> list[str]:
    return [sys.executable, "-m", "workloads.http.path_server", which, str(port)]


def _measure(ports: Mapping[str, int], rounds: int, seconds: float) -> Timings:
    timings: dict[Case, dict[str, list[Timing]]] = {
        case: {which: [] for which in SERVERS} for case in CASES
    }
    bodies = {stream: chat_body(stream=stream) for stream in (False, True)}
    with tqdm(total=rounds * len(CASES) * len(SERVERS), desc=NAME, unit="load") as progress:
        for turn in range(rounds):
            for case in CASES:
                for which in SERVERS if turn % 2 else reversed(SERVERS):
                    load = closed_load(
                        ports[which], bodies[case.stream], case.clients, seconds, case.stream
                    )
                    timings[case][which].append(asyncio.run(load))
                    progress.update()
    return timings


def _added(of_server: Mapping[str, Sequence[Timing]], share: str) -> float:
    pairs = zip(of_server["ours"], of_server["bare"], strict=True)
    name = f"{share}_ms"
    added = [getattr(ours, name) - getattr(bare, name) for ours, bare in pairs]
    return float(statistics.median(added))


def _median(timings: Sequence[Timing], name: str) -> float:
    return float(statistics.median(getattr(each, name) for each in timings))


def _side_by_side(timings: Timings) -> str:
    rows = []
    for case, of_server in timings.items():
        cells = [
            number(_median(of_server[which], name))
            for name in ("per_second", "p50_ms", "p99_ms")
            for which in SERVERS
        ]
        rows.append([case.name, *cells])
    columns = [f"{name}, {which}" for name in ("1/s", "p50 ms", "p99 ms") for which in SERVERS]
    return table(("load", *columns), rows)
