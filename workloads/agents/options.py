"""The options of bench-agent, checked before anything is started."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from workloads.traces.arrival import Arrival, parse_arrival

# Sized so that both runs end within three minutes at about 400 prompt tokens a second.
AGENTS, TURNS = 3, 4
TRACE_SESSIONS, TRACE_MAX_TURNS, TRACE_CONCURRENCY = 6, 4, 3
MAX_TOKENS = 24
THINK_TIME_S = 0.5


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What to replay, how, and against which server.

    ``trace`` None means synthetic agents. ``url`` None means servers of our own, one for each of
    ``caches`` (prefix cache on?), started with ``server_options``.
    """

    agents: int
    turns: int
    trace: Path | None
    sessions: int
    max_turns: int
    max_tokens: int
    think_time_s: float
    arrival: Arrival
    concurrency: int
    seed: int
    caches: tuple[bool, ...]
    server_options: tuple[str, ...]
    url: str | None
    flush: bool
    output: Path


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-agent command with its options."""
    parser = commands.add_parser(
        "bench-agent",
        help="what the prefix cache buys multi-turn agents, measured over HTTP",
        description="Starts a server, replays multi-turn agents or a recorded trace against it "
        "with the prefix cache on, and the same prompts in a fresh process with it off. Prints "
        "both side by side and writes bench-agent.json and bench-agent.png.",
    )
    _add_agent_options(parser.add_argument_group("synthetic agents"))
    _add_trace_options(parser.add_argument_group("a recorded trace instead"))
    _add_replay_options(parser.add_argument_group("how to replay"))
    _add_server_options(parser.add_argument_group("servers and results"))
    return parser


def _add_agent_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--agents", type=_whole, metavar="N", help=f"number of agents (default {AGENTS})"
    )
    group.add_argument(
        "--turns", type=_whole, metavar="N", help=f"calls that each agent makes (default {TURNS})"
    )


def _add_trace_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="a trace in the delta-chat format: .jsonl, .jsonl.zst or .jsonl.gz (default: none)",
    )
    group.add_argument(
        "--sessions",
        type=_whole,
        metavar="N",
        help=f"replay the trace's first N sessions (default {TRACE_SESSIONS})",
    )
    group.add_argument(
        "--max-turns",
        type=_whole,
        metavar="N",
        help=f"replay the first N calls of each session (default {TRACE_MAX_TURNS})",
    )


def _add_replay_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-tokens",
        type=_whole,
        default=MAX_TOKENS,
        metavar="N",
        help="generate at most N tokens a reply (default %(default)s)",
    )
    group.add_argument(
        "--think-time",
        type=_not_negative,
        default=THINK_TIME_S,
        metavar="SECONDS",
        help="mean time between a reply and the session's next call, exponentially distributed "
        "(default %(default)s s)",
    )
    group.add_argument(
        "--arrival",
        type=_arrival,
        default=Arrival(),
        metavar="HOW",
        help="when sessions start: together, stagger:SECONDS (one after the other) or "
        "poisson:RATE (sessions a second) (default together)",
    )
    group.add_argument(
        "--concurrency",
        type=_whole,
        metavar="N",
        help="sessions in flight; the next starts when one ends "
        f"(default: all agents, or {TRACE_CONCURRENCY} with a trace)",
    )
    group.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="decides tasks, tool results, arrivals and thinking times (default %(default)s)",
    )


def _add_server_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id for the server (default: the server's default model)",
    )
    group.add_argument(
        "--kv-memory",
        metavar="SIZE",
        help="the server's KV memory, such as 2GiB or 40%% (default: the server's default)",
    )
    group.add_argument(
        "--threads",
        type=_whole,
        metavar="N",
        help="threads the server computes with (default: the server's default)",
    )
    group.add_argument(
        "--only", choices=("on", "off"), help="run only with the cache on or off (default: both)"
    )
    group.add_argument(
        "--url",
        metavar="URL",
        help="replay once against a server that runs already, such as http://127.0.0.1:8000 "
        "(default: start our own)",
    )
    group.add_argument(
        "--flush",
        action="store_true",
        help="with --url: empty that server's prefix cache first, so that first turns are cold "
        "(default: leave it as it is)",
    )
    group.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results, plot and server logs (default %(default)s)",
    )


def resolve(args: argparse.Namespace, parser: argparse.ArgumentParser) -> AgentOptions:
    """The options with their defaults; ends with a usage error where two contradict each other."""
    traced = args.trace is not None
    for name in ("agents", "turns") if traced else ("sessions", "max_turns"):
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} does not apply {'with' if traced else 'without'} --trace")
    if traced and not args.trace.is_file():
        parser.error(f"--trace: there is no file {args.trace}")
    for name in ("model", "kv_memory", "threads", "only") if args.url else ():
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} is for servers of our own and does not apply with --url")
    if args.flush and not args.url:
        parser.error("--flush only applies with --url: servers of our own start empty")
    agents = args.agents or AGENTS
    server_options = [
        part
        for option in ("model", "kv_memory", "threads")
        if (value := getattr(args, option)) is not None
        for part in ("--" + option.replace("_", "-"), str(value))
    ]
    return AgentOptions(
        agents=agents,
        turns=args.turns or TURNS,
        trace=args.trace,
        sessions=args.sessions or TRACE_SESSIONS,
        max_turns=args.max_turns or TRACE_MAX_TURNS,
        max_tokens=args.max_tokens,
        think_time_s=args.think_time,
        arrival=args.arrival,
        concurrency=args.concurrency or (TRACE_CONCURRENCY if traced else agents),
        seed=args.seed,
        caches=(True, False) if args.only is None else (args.only == "on",),
        server_options=tuple(server_options),
        url=args.url.rstrip("/") if args.url else None,
        flush=args.flush,
        output=args.output,
    )


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _not_negative(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def _arrival(text: str) -> Arrival:
    try:
        return parse_arrival(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
