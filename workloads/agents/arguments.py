"""The command line of bench-agent; the groups that bench-peers has, too, are functions."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from workloads.agents.options import (
    AGENTS,
    MAX_TOKENS,
    SLO_SHARE,
    THINK_TIME_S,
    TRACE_CONCURRENCY,
    TRACE_MAX_TURNS,
    TRACE_SESSIONS,
    TURNS,
)
from workloads.agents.targets import Target, parse_target
from workloads.option_types import at_least
from workloads.traces.arrival import Arrival, parse_arrival

NAME = "bench-agent"
_whole = at_least(1, whole=True)


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-agent command with its options."""
    parser = commands.add_parser(
        NAME,
        help="what the prefix cache buys multi-turn agents, or servers compared, over HTTP",
        description="Starts a server, replays multi-turn agents or a recorded trace against it "
        "with the prefix cache on, and the same prompts in a fresh process with it off; or, with "
        "--url, against servers that run already, in turn. Prints all side by side and writes "
        f"{NAME}.json, {NAME}.png and {NAME}.html.",
    )
    add_load(parser)
    add_slo(parser)
    running = parser.add_argument_group("servers that run already")
    add_urls(running)
    _add_flush(running)
    _add_own(parser.add_argument_group("servers of our own (without --url)"))
    add_results(parser)
    return parser


def add_load(parser: argparse.ArgumentParser, agents: int = AGENTS, turns: int = TURNS) -> None:
    """What to replay and how. ``agents`` and ``turns``: how many without such an option."""
    _add_agents(parser.add_argument_group("synthetic agents"), agents, turns)
    _add_trace(parser.add_argument_group("a recorded trace instead"))
    _add_replay(parser.add_argument_group("how to replay"))


def _add_agents(group: argparse._ArgumentGroup, agents: int, turns: int) -> None:
    group.add_argument(
        "--agents", type=_whole, metavar="N", help=f"number of agents (default {agents})"
    )
    group.add_argument(
        "--turns", type=_whole, metavar="N", help=f"calls that each agent makes (default {turns})"
    )


def _add_trace(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="recorded sessions: delta-chat, a log of requests or ShareGPT; .jsonl or .json, also "
        "as .zst or .gz (default: none)",
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


def _add_replay(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-tokens",
        type=_whole,
        default=MAX_TOKENS,
        metavar="N",
        help="generate at most N tokens a reply (default %(default)s)",
    )
    group.add_argument(
        "--think-time",
        type=at_least(0),
        default=THINK_TIME_S,
        metavar="SECONDS",
        help="mean time between a reply and the session's next call, exponentially distributed "
        "(default %(default)s s)",
    )
    group.add_argument(
        "--arrival",
        type=_arrival,
        metavar="HOW",
        help="when sessions start: together, stagger:SECONDS (one after the other), poisson:RATE "
        "(sessions a second), or recorded[:FACTOR], with the recorded pauses too (0.5: twice as "
        "fast) (default together)",
    )
    group.add_argument(
        "--rates",
        type=_rates,
        default=(),
        metavar="RATE,...",
        help="replay once at each of these rates of arrival (sessions a second, Poisson, such as "
        "0.1,0.2,0.4), and find the highest that keeps the limits below (default: no sweep)",
    )
    group.add_argument(
        "--concurrency",
        type=_whole,
        metavar="N",
        help="sessions in flight; the next starts when one ends "
        f"(default: all, or {TRACE_CONCURRENCY} with a trace and no --rates)",
    )
    group.add_argument(
        "--rounds",
        type=_whole,
        default=1,
        metavar="N",
        help="times that each target replays all sessions, each time another target first; "
        "medians count (default %(default)s)",
    )
    group.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="decides tasks, tool results, arrivals and thinking times (default %(default)s)",
    )


def add_slo(parser: argparse.ArgumentParser) -> None:
    """The limits that turns should keep."""
    group = parser.add_argument_group("limits that turns should keep")
    group.add_argument(
        "--slo-ttft-ms",
        type=at_least(0),
        metavar="MS",
        help="most time to the first token, milliseconds (default: no limit)",
    )
    group.add_argument(
        "--slo-itl-ms",
        type=at_least(0),
        metavar="MS",
        help="most time from token to token, the mean of a turn, milliseconds (default: no limit)",
    )
    group.add_argument(
        "--slo-share",
        type=_share,
        metavar="SHARE",
        help="share of the turns that has to keep the limits for a rate to count, 0 to 1 "
        f"(default {SLO_SHARE})",
    )


def add_urls(group: argparse._ArgumentGroup) -> None:
    """Servers that run already, and how they are asked."""
    group.add_argument(
        "--url",
        type=_target,
        action="append",
        metavar="[NAME=]URL",
        help="replay against a server with OpenAI's API, such as vllm=http://127.0.0.1:8000; give "
        "it several times to compare several, in turn and with the same prompts (default: start "
        "our own)",
    )
    group.add_argument(
        "--model-name",
        metavar="NAME",
        help="the model to ask for (default: the one in each server's /v1/models)",
    )
    group.add_argument(
        "--api-key-env",
        action="append",
        default=[],
        metavar="[NAME=]VARIABLE",
        help="environment variable that holds the key for the target NAME, or for all (default: "
        "no key)",
    )


def _add_flush(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--flush",
        action="store_true",
        help="empty the servers' prefix caches before each replay, where they have a path for it, "
        "so that first turns are cold (default: leave them as they are)",
    )


def _add_own(group: argparse._ArgumentGroup) -> None:
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


def add_results(parser: argparse.ArgumentParser) -> None:
    """Where results go, and going on with a journal."""
    group = parser.add_argument_group("results")
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on where a run with the same options was interrupted, by its journal in --output "
        "(default: measure anew)",
    )
    group.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results, journal, plot, report and server logs (default %(default)s)",
    )


def _arrival(text: str) -> Arrival:
    try:
        return parse_arrival(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _target(text: str) -> Target:
    try:
        return parse_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _rates(text: str) -> tuple[float, ...]:
    rates = {_number(part) for part in text.split(",")}
    if not all(rate > 0 and math.isfinite(rate) for rate in rates):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of rates above 0 (sessions a second), such as 0.1,0.2,0.4"
        )
    return tuple(sorted(rates))


def _share(text: str) -> float:
    share = _number(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share above 0 and up to 1")
    return share


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
