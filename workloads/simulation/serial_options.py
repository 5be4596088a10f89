"""The options of simulate --serial, checked before anything is run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from radix_engine.cache import RULES
from workloads.option_types import at_least

OPTIMUM = "optimum"
_RULES = (*RULES, OPTIMUM)
_DEFAULT_BLOCKS = (1000, 2000, 4000, 8000)
_DEFAULT_SESSIONS = 20


@dataclass(frozen=True, slots=True)
class SerialOptions:
    """``traces`` of blocks: one; of text: one or several, mixed. See the help for the rest."""

    traces: tuple[Path, ...]
    blocks: tuple[int, ...]
    rules: tuple[str, ...]
    pinned: bool
    sessions: int
    in_flight: int
    shuffles: int
    shuffle_rounds: bool
    seconds_a_call: float
    block_tokens: int
    model: str | None
    seed: int
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
        "rules over --blocks",
    )
    group.add_argument(
        "--eviction",
        type=_list_of(_rule),
        default=("lru", OPTIMUM),
        metavar="RULE,...",
        help=f"rules to compare, of {', '.join(_RULES)}; optimum knows all later calls (default "
        f"lru,{OPTIMUM})",
    )
    group.add_argument(
        "--blocks",
        type=_list_of(at_least(1, whole=True)),
        default=_DEFAULT_BLOCKS,
        metavar="N,...",
        help="sizes of the memory, in blocks of the trace: 512 tokens in Mooncake's, 64 in Claude "
        f"Code's, else --block-tokens (default {','.join(map(str, _DEFAULT_BLOCKS))})",
    )
    group.add_argument(
        "--pinned",
        action="store_true",
        help="a call keeps its path for as long as the trace says that its reply took",
    )
    group.add_argument(
        "--shuffles",
        type=at_least(1, whole=True),
        default=1,
        metavar="N",
        help="traces of text: repeat with so many orders of the sessions, and give the means "
        "(default %(default)s)",
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
    group.add_argument(
        "--json", action="store_true", help="print the result as JSON in place of a table"
    )


def resolve_serial(args: argparse.Namespace, parser: argparse.ArgumentParser) -> SerialOptions:
    """The options with their defaults; ends with a usage error where one is missing."""
    if not args.trace:
        parser.error("--serial needs --trace FILE, the recorded calls")
    for file in args.trace:
        if not file.is_file():
            parser.error(f"--trace {file}: there is no such file")
    return SerialOptions(
        traces=tuple(args.trace),
        blocks=tuple(args.blocks),
        rules=tuple(dict.fromkeys(args.eviction)),
        pinned=args.pinned,
        sessions=args.sessions or _DEFAULT_SESSIONS,
        in_flight=args.concurrency or 16,
        shuffles=args.shuffles,
        shuffle_rounds=args.shuffle_rounds,
        seconds_a_call=args.seconds_a_call,
        block_tokens=args.block_tokens,
        model=args.model,
        seed=args.seed,
        as_json=args.json,
        output=args.output,
    )


def _rule(text: str) -> str:
    if text not in _RULES:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_RULES)}")
    return text


def _list_of(read: Callable[[str], object]) -> Callable[[str], tuple[object, ...]]:
    def read_all(text: str) -> tuple[object, ...]:
        return tuple(read(part.strip()) for part in text.split(",") if part.strip())

    return read_all
