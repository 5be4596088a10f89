"""What bench-agent is asked to do, checked before anything is started."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from workloads.agents.slo import Slo
from workloads.agents.targets import (
    Target,
    own_targets,
    repeated_name,
    with_access,
)
from workloads.traces.arrival import Arrival

# Sized so that both runs end within three minutes at about 400 prompt tokens a second.
AGENTS, TURNS = 3, 4
TRACE_SESSIONS, TRACE_MAX_TURNS, TRACE_CONCURRENCY = 6, 4, 3
MAX_TOKENS = 24
THINK_TIME_S = 0.5
SLO_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Load:
    """The sessions to replay and how.

    ``trace`` None means synthetic agents. ``concurrency`` None means all sessions. ``rates``
    (sessions a second) sweep over Poisson arrivals in place of ``arrival``; empty for no sweep.
    """

    agents: int
    turns: int
    trace: Path | None
    sessions: int
    max_turns: int
    max_tokens: int
    think_time_s: float
    arrival: Arrival
    concurrency: int | None
    seed: int
    rounds: int = 1
    rates: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What to replay, against which servers, and what is asked of them.

    ``server_options`` are for the servers of our own among the targets. ``flush`` empties the
    prefix caches of the others before each replay.
    """

    load: Load
    targets: tuple[Target, ...]
    server_options: tuple[str, ...]
    flush: bool
    slo: Slo
    resume: bool
    output: Path


def resolve(args: argparse.Namespace, parser: argparse.ArgumentParser) -> AgentOptions:
    """The options with their defaults; ends with a usage error where two contradict each other."""
    for name in ("model", "kv_memory", "threads", "only") if args.url else ():
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} is for servers of our own and does not apply with --url")
    for name in ("flush", "model_name", "api_key_env") if not args.url else ():
        if getattr(args, name):
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} only applies with --url, not to servers of our own")
    caches = (True, False) if args.only is None else (args.only == "on",)
    server_options = [
        part
        for option in ("model", "kv_memory", "threads")
        if (value := getattr(args, option)) is not None
        for part in ("--" + option.replace("_", "-"), str(value))
    ]
    return AgentOptions(
        load=resolve_load(args, parser),
        targets=resolve_targets(args, parser) if args.url else own_targets(caches),
        server_options=tuple(server_options),
        flush=args.flush,
        slo=resolve_slo(args, parser),
        resume=args.resume,
        output=args.output,
    )


def resolve_targets(
    args: argparse.Namespace, parser: argparse.ArgumentParser
) -> tuple[Target, ...]:
    """The targets of --url, with --model-name and the keys of --api-key-env."""
    if (name := repeated_name(args.url)) is not None:
        parser.error(f"--url: two targets have the name {name}; give each one as NAME=URL")
    try:
        return with_access(args.url, args.model_name, args.api_key_env, os.environ)
    except ValueError as error:
        parser.error(f"--api-key-env: {error}")


def resolve_load(
    args: argparse.Namespace,
    parser: argparse.ArgumentParser,
    agents: int = AGENTS,
    turns: int = TURNS,
) -> Load:
    """The load with its defaults; ends with a usage error where two options contradict.

    ``agents`` and ``turns``: how many without such an option.
    """
    traced = args.trace is not None
    for name in ("agents", "turns") if traced else ("sessions", "max_turns"):
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} does not apply {'with' if traced else 'without'} --trace")
    if traced and not args.trace.is_file():
        parser.error(f"--trace: there is no file {args.trace}")
    if args.rates and args.arrival is not None:
        parser.error("--rates and --arrival both say when sessions start: give one of them")
    concurrency = args.concurrency
    if concurrency is None and traced and not args.rates:
        concurrency = TRACE_CONCURRENCY
    return Load(
        agents=args.agents or agents,
        turns=args.turns or turns,
        trace=args.trace,
        sessions=args.sessions or TRACE_SESSIONS,
        max_turns=args.max_turns or TRACE_MAX_TURNS,
        max_tokens=args.max_tokens,
        think_time_s=args.think_time,
        arrival=args.arrival or Arrival(),
        concurrency=concurrency,
        seed=args.seed,
        rounds=args.rounds,
        rates=args.rates,
    )


def resolve_slo(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Slo:
    """The limits; ends with a usage error where a share is asked of none."""
    if args.slo_share is not None and args.slo_ttft_ms is None and args.slo_itl_ms is None:
        parser.error("--slo-share needs a limit: --slo-ttft-ms, --slo-itl-ms or both")
    return Slo(args.slo_ttft_ms, args.slo_itl_ms, args.slo_share or SLO_SHARE)
