"""The options of soak, checked before anything is started."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from workloads.option_types import at_least

NAME = "soak"
SECONDS, QUESTIONS = 60.0, 48
OVERLOAD = 3
MAX_RUNNING, KV_MEMORY = 8, "64MiB"
_OF_OWN = ("model", "kv_memory", "max_running")


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """How long, how much and against which server. ``rate``: requests a second (None: as many as
    are answered). ``clients`` None: three times what the server runs at a time. ``url`` None: a
    server of our own with ``server_options``."""

    seconds: float
    rate: float | None
    clients: int | None
    questions: int
    seed: int
    url: str | None
    server_options: tuple[str, ...]
    output: Path


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The soak command with its options."""
    parser = commands.add_parser(
        NAME,
        help="random clients at three times what a server can take: leaks, faults, wrong answers",
        description="Starts a server with little memory, asks it a list of questions one by one, "
        f"and then has {OVERLOAD} times as many clients as it runs requests at a time, whose "
        f"prompts take {OVERLOAD} times its KV memory, ask them at random: whole, streamed, in "
        "every cache mode, hanging up, beside requests that are garbage. Every answer is compared "
        "with that to the same question when it was calm. Ends with status 1 if one was wrong, a "
        f"block leaked or a request failed that should not. Writes {NAME}.json.",
    )
    load = parser.add_argument_group("the load")
    load.add_argument(
        "--seconds",
        type=at_least(1.0),
        default=SECONDS,
        metavar="S",
        help="how long the clients go on (default %(default)s s)",
    )
    load.add_argument(
        "--rate",
        type=at_least(0.01),
        metavar="N",
        help="requests a second, of all clients together (default: each client sends the next as "
        "soon as it has the last answer)",
    )
    load.add_argument(
        "--clients",
        type=at_least(1, whole=True),
        metavar="N",
        help=f"clients (default: {OVERLOAD} times --max-running of the server)",
    )
    load.add_argument(
        "--questions",
        type=at_least(1, whole=True),
        default=QUESTIONS,
        metavar="N",
        help="different questions (default %(default)s)",
    )
    load.add_argument(
        "--seed", type=int, default=0, metavar="N", help="decides them (default %(default)s)"
    )
    server = parser.add_argument_group("the server and the result")
    server.add_argument(
        "--url",
        metavar="URL",
        help="a server that runs already, such as http://127.0.0.1:8000 (default: our own)",
    )
    server.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id for our server (default: the server's default model)",
    )
    server.add_argument(
        "--kv-memory",
        metavar="SIZE",
        help=f"KV memory of our server; little is the point (default {KV_MEMORY})",
    )
    server.add_argument(
        "--max-running",
        type=at_least(1, whole=True),
        metavar="N",
        help=f"requests that our server runs at a time (default {MAX_RUNNING})",
    )
    server.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for the result and the server's log (default %(default)s)",
    )
    return parser


def resolve(args: argparse.Namespace, parser: argparse.ArgumentParser) -> SoakOptions:
    """The options with their defaults; ends with a usage error where two contradict each other."""
    for name in _OF_OWN if args.url else ():
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} is for a server of our own and does not apply with --url")
    running = args.max_running or MAX_RUNNING
    model = () if args.model is None else ("--model", args.model)
    return SoakOptions(
        seconds=args.seconds,
        rate=args.rate,
        clients=args.clients,
        questions=args.questions,
        seed=args.seed,
        url=args.url.rstrip("/") if args.url else None,
        server_options=(
            *model,
            *("--kv-memory", args.kv_memory or KV_MEMORY),
            *("--max-running", str(running)),
            # So that with several answers a request the queue is full at times.
            *("--max-waiting", str((OVERLOAD - 1) * running)),
        ),
        output=args.output,
    )
