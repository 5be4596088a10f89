"""The command line of simulate."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from radix_engine.cache import RULES
from scheduler import Limits
from scheduler.order import ORDERS
from server.config.readers import auto_off_or, number
from workloads.option_types import at_least, list_of, one_of, reading
from workloads.simulation.prices import add_prices
from workloads.simulation.serial_options import OPTIMUM, add_serial

NAME = "simulate"
KINDS = ("zipf", "fewshot", "trace")
DEFAULT_ORDERS = ("lpm", "dfs", "hrrn", "fcfs")

# For each option that only some kinds of load have: its default for those.
DEFAULTS: Mapping[str, Mapping[str, float]] = {
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
# Of these a trace of block ids has no default: all of it is simulated, at its own times.
OF_TEXT = ("sessions", "max_turns", "concurrency", "think_time")


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The simulate command with its options."""
    parser = commands.add_parser(
        NAME,
        help="orders, eviction rules and sizes of the memory compared, with simulated steps",
        description="Runs the scheduler and the prefix cache that serve on a simulated clock, "
        "where a step takes what a cost model says, and compares orders of the waiting requests, "
        "eviction rules and sizes of the memory. With --serial the cache alone, beside the best "
        f"that any rule could do. Needs no model and no server. Prints a table and writes {NAME}"
        f".json and {NAME}.png ({NAME}-serial with --serial).",
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
    add_prices(group)
    group.add_argument(
        "--json", action="store_true", help="print the result as JSON in place of a table"
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
        help="recorded calls with their texts (several files are mixed, in an order by --seed), "
        ".jsonl, .jsonl.zst or .jsonl.gz; or one file of block ids, Mooncake's, or Claude Code's "
        "as ranges, of which all is simulated at its own times if nothing else is said",
    )
    _number(group, "sessions", "each file's first N sessions", whole=True)
    _number(group, "max_turns", "the first N calls of each session", whole=True)
    _number(group, "concurrency", "sessions in flight; the next starts when one ends", whole=True)
    _number(
        group,
        "think_time",
        "mean time between a reply and the session's next call, exponentially distributed, in "
        "simulated seconds; not of a trace of block ids, which has pauses of its own",
        least=0,
        metavar="SECONDS",
    )
    group.add_argument(
        "--context-length",
        type=at_least(2, whole=True),
        metavar="N",
        help="tokens of a prompt and its reply at most; a session that outgrows this, or the "
        "memory, ends there, and is counted (default: the memory alone bounds them)",
    )


def _add_serving(group: argparse._ArgumentGroup) -> None:
    limits = Limits()
    group.add_argument(
        "--order",
        "--orders",
        dest="orders",
        nargs="+",
        type=list_of(one_of(ORDERS)),
        default=[DEFAULT_ORDERS],
        metavar="ORDER,...",
        help=f"orders to compare, of {', '.join(ORDERS)}; no load has priorities, so priority is "
        f"fcfs here (default {','.join(DEFAULT_ORDERS)})",
    )
    group.add_argument(
        "--eviction",
        type=list_of(one_of((*RULES, OPTIMUM))),
        metavar="RULE,...",
        help=f"eviction rules to compare, of {', '.join(RULES)}; with --serial also {OPTIMUM}, "
        f"which knows all later calls (default lru; lru,{OPTIMUM} with --serial)",
    )
    group.add_argument(
        "--blocks",
        type=list_of(at_least(1, whole=True)),
        metavar="N,...",
        help="sizes of the memory, in blocks: 16 tokens, in a trace of block ids its own (512 "
        "tokens in Mooncake's, 64 in Claude Code's), with --serial and texts --block-tokens "
        "(default: --pool-share; 1000,2000,4000,8000 with --serial)",
    )
    group.add_argument(
        "--pool-share",
        type=list_of(at_least(1e-6)),
        default=(0.25,),
        metavar="X,...",
        help="sizes of the memory, as shares of the blocks that all distinct tokens of prompts "
        "and replies fill (default 0.25)",
    )
    group.add_argument(
        "--prefix-index",
        choices=("tree", "hash"),
        default="tree",
        help="the radix tree, or the flat index of block hashes (default %(default)s)",
    )
    group.add_argument(
        "--max-sessions",
        type=list_of(reading(auto_off_or(number(1, whole=True)))),
        default=(None,),
        metavar="N,...",
        help="sessions in flight at most, whose contexts are to fit the memory together: numbers, "
        "auto or off, to compare (default off)",
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


def _number(
    group: argparse._ArgumentGroup,
    name: str,
    what: str,
    *,
    least: float = 1,
    whole: bool = False,
    metavar: str = "N",
) -> None:
    defaults = DEFAULTS[name]
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
