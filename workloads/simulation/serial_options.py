"""The options of simulate --serial, checked before anything is run."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from workloads.option_types import at_least
from workloads.simulation.prices import Prices, prices_of

OPTIMUM = "optimum"
_DEFAULT_BLOCKS = (1000, 2000, 4000, 8000)
_DEFAULT_SESSIONS = 20


@dataclass(frozen=True, slots=True)
class SerialOptions:
    """``traces`` of blocks: one; of text: one or several, mixed. See the help for the rest."""

    traces: tuple[Path, ...]
    blocks: tuple[int, ...]
    rules: tuple[str, ...]
    pinned: bool
    longest_pause_s: float | None
    sessions: int
    in_flight: int
    shuffles: int
    shuffle_rounds: bool
    random_order: bool
    seconds_a_call: float
    block_tokens: int
    model: str | None
    seed: int
    prices: Prices
    as_json: bool
    output: Path


def add_serial(parser: argparse.ArgumentParser) -> None:
    """The options, as a group of simulate's."""
    group = parser.add_argument_group(
        "one call at a time",
        "The prefix cache alone, without a scheduler: each call is served before the next comes, "
        "so that all that differs is what is evicted.",
    )
    group.add_argument(
        "--serial",
        action="store_true",
        help="serve the calls of --trace one by one, in order of arrival, and compare --eviction "
        "rules over --blocks; what is said of orders, limits, thinking times and costs of steps "
        "does not apply",
    )
    group.add_argument(
        "--pinned",
        action="store_true",
        help="a call keeps its path for as long as the trace says that its reply took",
    )
    group.add_argument(
        "--longest-pause",
        type=at_least(0),
        metavar="SECONDS",
        help="traces of block ids with recorded pauses (Claude Code's): pauses as recorded, each "
        "of at most so long, in place of the trace's own times",
    )
    group.add_argument(
        "--shuffles",
        type=at_least(1, whole=True),
        default=1,
        metavar="N",
        help="repeat with so many orders of the sessions (traces of text), or of the calls "
        "(--random-order), and give the means (default %(default)s)",
    )
    group.add_argument(
        "--random-order",
        action="store_true",
        help="the calls in an entirely random order by --seed: what a rule that learns from the "
        "order can lose",
    )
    group.add_argument(
        "--shuffle-rounds",
        action="store_true",
        help="traces of text: the --concurrency sessions in flight take their turns in another "
        "order each round, in place of always the same",
    )
    group.add_argument(
        "--seconds-a-call",
        type=at_least(0),
        default=1.0,
        metavar="SECONDS",
        help="traces of text: the time from call to call, for rules that look at times (default "
        "%(default)s s)",
    )
    group.add_argument(
        "--block-tokens",
        type=at_least(1, whole=True),
        default=16,
        metavar="N",
        help="traces of text: tokens in a block (default %(default)s)",
    )
    group.add_argument(
        "--model",
        metavar="WHAT",
        help="traces of text: the model whose tokenizer is used (default: the default model's)",
    )


def resolve_serial(args: argparse.Namespace, parser: argparse.ArgumentParser) -> SerialOptions:
    """The options with their defaults; ends with a usage error where one is missing."""
    if not args.trace:
        parser.error("--serial needs --trace FILE, the recorded calls")
    for file in args.trace:
        if not file.is_file():
            parser.error(f"--trace {file}: there is no such file")
    prices = prices_of(args)
    if prices.gpu_hour_dollars is not None and prices.prefill_tokens_per_s is None:
        parser.error(
            "--gpu-hour-dollars needs --prefill-tokens-per-s with --serial, where no time passes"
        )
    return SerialOptions(
        traces=tuple(args.trace),
        blocks=tuple(dict.fromkeys(args.blocks or _DEFAULT_BLOCKS)),
        rules=tuple(dict.fromkeys(args.eviction or ("lru", OPTIMUM))),
        pinned=args.pinned,
        longest_pause_s=args.longest_pause,
        sessions=args.sessions or _DEFAULT_SESSIONS,
        in_flight=args.concurrency or 16,
        shuffles=args.shuffles,
        shuffle_rounds=args.shuffle_rounds,
        random_order=args.random_order,
        seconds_a_call=args.seconds_a_call,
        block_tokens=args.block_tokens,
        model=args.model,
        seed=args.seed,
        prices=prices,
        as_json=args.json,
        output=args.output,
    )
