"""The options of simulate, checked before anything is run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scheduler import Limits
from scheduler.order import ORDERS
from workloads.option_types import at_least
from workloads.simulation.serial_options import add_serial

NAME = "simulate"
KINDS = ("zipf", "fewshot", "trace")
DEFAULT_ORDERS = ("lpm", "dfs", "hrrn", "fcfs")

# For each option that only some kinds of load have: its default for those.
_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "requests": {"zipf": 2000},
    "heads": {"zipf": 64, "fewshot": 57},
    "zipf_s": {"zipf": 1.0},
    "load": {"zipf": 1.3},
    "questions": {"fewshot": 35},
    "head_tokens": {"zipf": 1024, "fewshot": 1024},
    "own_tokens": {"zipf": 128, "fewshot": 128},
    "sessions": {"trace": 32},
    "max_turns": {"trace": 16},
    "concurrency": {"trace": 16},
    "think_time": {"trace": 0.5},
}


@dataclass(frozen=True, slots=True)
class SimOptions:
    """What to simulate. Numbers that the ``kind`` of load does not have are 0; see the help."""

    kind: str
    requests: int
    heads: int
    zipf_s: float
    load: float
    questions: int
    head_tokens: int
    own_tokens: int
    reply_tokens: int
    trace: Path | None
    sessions: int
    max_turns: int
    concurrency: int
    think_time_s: float
    pool_share: float
    orders: tuple[str, ...]
    index: str
    limits: Limits
    fit: Path | None
    seed: int
    output: Path


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The simulate command with its options."""
    parser = commands.add_parser(
        NAME,
        help="orders of the waiting requests compared, with simulated steps",
        description="Runs the scheduler and the prefix cache that serve on a simulated clock, "
        "where a step takes what a cost model says, and compares orders of the waiting requests. "
        f"Needs no model and no server. Prints a table and writes {NAME}.json and {NAME}.png.",
    )
    parser.add_argument(
        "kind",
        nargs="?",
        choices=KINDS,
        default="zipf",
        help="zipf: requests that arrive one by one, each with one of a few heads, some far more "
        "often than others; fewshot: an offline batch of questions to each head, shuffled; trace: "
        "recorded sessions (default: zipf)",
    )
    _add_made_up(parser.add_argument_group("zipf and fewshot"))
    _add_trace(parser.add_argument_group("trace"))
    _add_serving(parser.add_argument_group("how it is served"))
    add_serial(parser)
    group = parser.add_argument_group("costs and results")
    group.add_argument(
        "--fit",
        type=Path,
        metavar="FILE",
        help="fit the cost of a step to measured ones, as measure-steps writes them (default: "
        "costs measured with the default model)",
    )
    group.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="decides tokens, heads, arrivals and thinking times (default %(default)s)",
    )
    group.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results and plot (default %(default)s)",
    )
    return parser


def _add_made_up(group: argparse._ArgumentGroup) -> None:
    _number(group, "requests", "zipf: requests in all", whole=True)
    _number(group, "heads", "heads that prompts begin with", whole=True)
    _number(
        group,
        "zipf_s",
        "zipf: head number k is drawn with a weight of 1/k^S; 0 draws all alike",
        least=0,
        metavar="S",
    )
    _number(
        group,
        "load",
        "zipf: arrivals as a multiple of what fcfs can serve; above 1 the queue grows",
        least=1e-6,
        metavar="X",
    )
    _number(group, "questions", "fewshot: requests to each head", whole=True)
    _number(group, "head_tokens", "length of a head, in tokens", whole=True)
    _number(group, "own_tokens", "tokens behind the head that no other request has", whole=True)
    group.add_argument(
        "--reply-tokens",
        type=at_least(1, whole=True),
        default=64,
        metavar="N",
        help="tokens generated for a request; in a trace where no reply was recorded (default "
        "%(default)s)",
    )


def _add_trace(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--trace",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="a trace in the delta-chat format, .jsonl, .jsonl.zst or .jsonl.gz; with --serial "
        "also several, or one of block ids (Mooncake's, or Claude Code's as ranges)",
    )
    _number(group, "sessions", "the trace's first N sessions", whole=True)
    _number(group, "max_turns", "the first N calls of each session", whole=True)
    _number(group, "concurrency", "sessions in flight; the next starts when one ends", whole=True)
    _number(
        group,
        "think_time",
        "mean time between a reply and the session's next call, exponentially distributed, in "
        "simulated seconds",
        least=0,
        metavar="SECONDS",
    )


def _add_serving(group: argparse._ArgumentGroup) -> None:
    limits = Limits()
    group.add_argument(
        "--orders",
        nargs="+",
        choices=tuple(ORDERS),
        default=list(DEFAULT_ORDERS),
        metavar="ORDER",
        help=f"orders to compare, of {', '.join(ORDERS)}; no load has priorities, so priority is "
        f"fcfs here (default {' '.join(DEFAULT_ORDERS)})",
    )
    group.add_argument(
        "--pool-share",
        type=at_least(1e-6),
        default=0.25,
        metavar="X",
        help="blocks of the pool, as a share of those that all distinct tokens of prompts and "
        "replies fill (default %(default)g)",
    )
    group.add_argument(
        "--prefix-index",
        choices=("tree", "hash"),
        default="tree",
        help="the radix tree, or the flat index of block hashes (default %(default)s)",
    )
    for name, default, what in (
        ("max_step_tokens", limits.step_tokens, "tokens computed in one step"),
        ("max_running", limits.max_running, "requests that run at a time"),
        (
            "max_passed_by",
            limits.max_passed_by,
            "later arrivals that may start before a waiting request",
        ),
    ):
        group.add_argument(
            "--" + name.replace("_", "-"),
            type=at_least(0 if name == "max_passed_by" else 1, whole=True),
            default=default,
            metavar="N",
            help=f"{what} (default %(default)s)",
        )


def resolve(args: argparse.Namespace, parser: argparse.ArgumentParser) -> SimOptions:
    """The options with their defaults; ends with a usage error where two contradict each other."""
    kind: str = args.kind
    numbers: dict[str, float] = {}
    for name, defaults in _DEFAULTS.items():
        value = getattr(args, name)
        if value is not None and kind not in defaults:
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} {value} does not apply to {kind}: it is for {_or(defaults)}")
        numbers[name] = defaults.get(kind, 0) if value is None else value
    if kind == "trace" and args.trace is None:
        parser.error("trace needs --trace FILE, the recorded sessions")
    if kind != "trace" and args.trace is not None:
        parser.error(
            f"--trace {args.trace[0]} does not apply to {kind}: say simulate trace, or --serial"
        )
    trace: Path | None = args.trace[0] if args.trace else None
    if args.trace and len(args.trace) > 1:
        parser.error("--trace takes one file without --serial")
    for option, file in (("--trace", trace), ("--fit", args.fit)):
        if file is not None and not file.is_file():
            parser.error(f"{option} {file}: there is no such file")
    try:
        limits = Limits(args.max_step_tokens, args.max_running, args.max_passed_by)
    except ValueError as error:
        parser.error(f"{error}; lower --max-running or raise --max-step-tokens")
    return SimOptions(
        kind=kind,
        requests=int(numbers["requests"]),
        heads=int(numbers["heads"]),
        zipf_s=numbers["zipf_s"],
        load=numbers["load"],
        questions=int(numbers["questions"]),
        head_tokens=int(numbers["head_tokens"]),
        own_tokens=int(numbers["own_tokens"]),
        reply_tokens=args.reply_tokens,
        trace=trace,
        sessions=int(numbers["sessions"]),
        max_turns=int(numbers["max_turns"]),
        concurrency=int(numbers["concurrency"]),
        think_time_s=numbers["think_time"],
        pool_share=args.pool_share,
        orders=tuple(dict.fromkeys(args.orders)),
        index=args.prefix_index,
        limits=limits,
        fit=args.fit,
        seed=args.seed,
        output=args.output,
    )


def default_options() -> SimOptions:
    """The options of the command without any."""
    parser = argparse.ArgumentParser()
    command = add_parser(parser.add_subparsers())
    return resolve(parser.parse_args([NAME]), command)


def _number(
    group: argparse._ArgumentGroup,
    name: str,
    what: str,
    *,
    least: float = 1,
    whole: bool = False,
    metavar: str = "N",
) -> None:
    defaults = _DEFAULTS[name]
    if len(set(defaults.values())) == 1:
        text = f"{next(iter(defaults.values())):g}"
    else:
        text = ", ".join(f"{kind} {value:g}" for kind, value in defaults.items())
    group.add_argument(
        "--" + name.replace("_", "-"),
        type=at_least(least, whole=whole),
        metavar=metavar,
        help=f"{what} (default {text})",
    )


def _or(kinds: Mapping[str, float]) -> str:
    return " or ".join(kinds)
