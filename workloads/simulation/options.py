"""The options of simulate, checked before anything is run."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scheduler import Limits
from workloads.simulation.arguments import DEFAULTS, NAME, OF_TEXT, add_parser
from workloads.simulation.prices import Prices, prices_of
from workloads.simulation.serial_options import OPTIMUM
from workloads.traces.block_trace import is_block_trace
from workloads.traces.lines import TraceError


@dataclass(frozen=True, slots=True)
class SimOptions:
    """What to simulate. Numbers that the ``kind`` of load does not have, or that do not bound it,
    are 0; see the help. ``of_blocks``: the trace is one of block ids. ``blocks``: sizes of the
    memory; where empty, ``pool_shares`` are."""

    kind: str
    requests: int
    heads: int
    zipf_s: float
    load: float
    questions: int
    head_tokens: int
    own_tokens: int
    reply_tokens: int
    traces: tuple[Path, ...]
    of_blocks: bool
    sessions: int
    max_turns: int
    concurrency: int
    think_time_s: float
    context_length: int | None
    blocks: tuple[int, ...]
    pool_shares: tuple[float, ...]
    orders: tuple[str, ...]
    evictions: tuple[str, ...]
    max_sessions: tuple[int | Literal["auto"] | None, ...]
    index: str
    limits: Limits
    fit: Path | None
    prices: Prices
    seed: int
    as_json: bool
    output: Path


def resolve(args: argparse.Namespace, parser: argparse.ArgumentParser) -> SimOptions:
    """The options with their defaults; ends with a usage error where two contradict each other."""
    kind: str = args.kind
    for name, defaults in DEFAULTS.items():
        value = getattr(args, name)
        if value is not None and kind not in defaults:
            option = "--" + name.replace("_", "-")
            parser.error(
                f"{option} {value} does not apply to {kind}: it is for {' or '.join(defaults)}"
            )
    traces = tuple(args.trace or ())
    if kind == "trace" and not traces:
        parser.error("trace needs --trace FILE, the recorded sessions")
    if kind != "trace" and traces:
        parser.error(f"--trace {traces[0]} does not apply to {kind}: say simulate trace")
    for option, file in (*(("--trace", trace) for trace in traces), ("--fit", args.fit)):
        if file is not None and not file.is_file():
            parser.error(f"{option} {file}: there is no such file")
    of_blocks = _are_of_blocks(traces, parser)
    numbers = _numbers(args, parser, of_blocks=of_blocks)
    evictions = tuple(dict.fromkeys(args.eviction or ("lru",)))
    if OPTIMUM in evictions:
        parser.error(
            f"--eviction {OPTIMUM} needs --serial: it has to know all later calls, and when a call "
            "comes here depends on how the ones before were served"
        )
    if args.prefix_index == "hash" and evictions != ("lru",):
        parser.error("--prefix-index hash has no --eviction but lru")
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
        traces=traces,
        of_blocks=of_blocks,
        sessions=int(numbers["sessions"]),
        max_turns=int(numbers["max_turns"]),
        concurrency=int(numbers["concurrency"]),
        think_time_s=numbers["think_time"],
        context_length=args.context_length,
        blocks=tuple(dict.fromkeys(args.blocks or ())),
        pool_shares=tuple(dict.fromkeys(args.pool_share)),
        orders=tuple(dict.fromkeys(order for some in args.orders for order in some)),
        evictions=evictions,
        max_sessions=tuple(dict.fromkeys(args.max_sessions)),
        index=args.prefix_index,
        limits=limits,
        fit=args.fit,
        prices=prices_of(args),
        seed=args.seed,
        as_json=args.json,
        output=args.output,
    )


def _are_of_blocks(traces: tuple[Path, ...], parser: argparse.ArgumentParser) -> bool:
    try:
        of_blocks = any(map(is_block_trace, traces))
    except TraceError:
        return False  # whoever reads it says what is wrong
    if of_blocks and len(traces) > 1:
        parser.error(f"--trace {traces[0]} ...: of traces of block ids, one can be simulated")
    return of_blocks


def _numbers(
    args: argparse.Namespace, parser: argparse.ArgumentParser, *, of_blocks: bool
) -> dict[str, float]:
    """The options that only some kinds of load have; 0 for those that this one has not."""
    if of_blocks and args.think_time is not None:
        parser.error(
            f"--think-time {args.think_time} does not apply to a trace of block ids, which has "
            "pauses of its own"
        )
    numbers: dict[str, float] = {}
    for name, defaults in DEFAULTS.items():
        value = getattr(args, name)
        default = 0 if of_blocks and name in OF_TEXT else defaults.get(args.kind, 0)
        numbers[name] = default if value is None else value
    return numbers


def default_options() -> SimOptions:
    """The options of the command without any."""
    parser = argparse.ArgumentParser()
    command = add_parser(parser.add_subparsers())
    return resolve(parser.parse_args([NAME]), command)
