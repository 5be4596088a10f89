"""The options of bench-peers, checked before anything is started."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from workloads.agents.arguments import add_load, add_results, add_slo, add_urls
from workloads.agents.options import Load, resolve_load, resolve_slo, resolve_targets
from workloads.agents.slo import Slo
from workloads.agents.targets import Target
from workloads.option_types import at_least

NAME = "bench-peers"
OURS = "ours"
# Engines that are installed and started here; others are given as URLs.
STARTED = ("vllm",)
AGENTS, TURNS, MAX_TOKENS, ROUNDS = 6, 5, 32, 3
KV_GIB = 2


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """What to replay and against whom.

    ``peers`` are started here, ``running`` run already. ``kv_gib`` and ``threads`` (None: all
    processors) are those of every server that is started here. ``only_install`` measures nothing.
    """

    load: Load
    peers: tuple[str, ...]
    running: tuple[Target, ...]
    slo: Slo
    model: str | None
    threads: int | None
    kv_gib: int
    build: Path
    only_install: bool
    resume: bool
    output: Path


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-peers command with its options."""
    parser = commands.add_parser(
        NAME,
        help="agents over HTTP: ours against other engines' servers, in turn",
        description="Starts our server and those of --peers (installed into --build the first "
        "time, some GB), all with the same model, memory and threads, replays the same agents or "
        "trace against each in turn, with empty caches, and prints wall time, times to first token "
        f"and hit rates side by side. Writes {NAME}.json, {NAME}.png and {NAME}.html.",
    )
    add_load(parser, AGENTS, TURNS)
    parser.set_defaults(max_tokens=MAX_TOKENS, think_time=0.0, rounds=ROUNDS)
    add_slo(parser)
    group = parser.add_argument_group("servers that are started")
    group.add_argument(
        "--peers",
        nargs="*",
        choices=STARTED,
        default=list(STARTED),
        metavar="NAME",
        help=f"engines to install and start beside ours: {', '.join(STARTED)} (default: all of "
        "them); none with --peers alone",
    )
    group.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id (default: the server's default model)",
    )
    group.add_argument(
        "--threads",
        type=at_least(1, whole=True),
        metavar="N",
        help="threads of every server (default: the processors that this process may use)",
    )
    group.add_argument(
        "--kv-memory",
        type=at_least(1, whole=True),
        default=KV_GIB,
        metavar="GIB",
        help="memory for K and V of every server, whole GiB (default %(default)s GiB)",
    )
    group.add_argument(
        "--build",
        type=Path,
        default=Path("build"),
        metavar="DIR",
        help="folder for the peers' environments and models, some GB (default %(default)s)",
    )
    group.add_argument(
        "--only-install",
        action="store_true",
        help="install the peers and make their form of the model, and measure nothing",
    )
    add_urls(
        parser.add_argument_group(
            "other servers that run already",
            "They should have the same model. Their prefix caches are emptied, too, where they "
            "have a path for it.",
        )
    )
    add_results(parser)
    return parser


def resolve(args: argparse.Namespace, parser: argparse.ArgumentParser) -> PeerOptions:
    """The options with their defaults; ends with a usage error where one cannot be."""
    args.url = args.url or []
    peers = tuple(dict.fromkeys(args.peers))
    if not peers and not args.url:
        parser.error("nobody to compare with: name engines with --peers, or servers with --url")
    for name in ("model_name", "api_key_env") if not args.url else ():
        if getattr(args, name):
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} only applies with --url, not to servers that are started")
    for target in args.url:
        if target.name in (OURS, *peers):
            parser.error(f"--url: {target.name} is started here; give that server another name")
    return PeerOptions(
        load=resolve_load(args, parser, AGENTS, TURNS),
        peers=peers,
        running=resolve_targets(args, parser),
        slo=resolve_slo(args, parser),
        model=args.model,
        threads=args.threads,
        kv_gib=args.kv_memory,
        build=args.build,
        only_install=args.only_install,
        resume=args.resume,
        output=args.output,
    )
