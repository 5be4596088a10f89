"""The options of bench-cpu, checked before anything is started."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from workloads.cpu.cases import Case, all_cases, chosen_cases
from workloads.cpu.peer_setup import PEERS
from workloads.option_types import at_least

NAME = "bench-cpu"
ROUNDS = 5
KV_GIB = 2
QUICK = (
    "cold_ttft_2050",
    "warm_ttft_2000",
    "decode_1_short",
    "decode_1_2k",
    "decode_8_short",
    "nothing_shared",
)


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """What to measure, how often and with what. ``kv_gib``: of each engine; ``build``: where the
    peers' environments are."""

    peers: tuple[str, ...]
    rounds: int
    cases: tuple[Case, ...]
    model: str | None
    threads: int | None
    kv_gib: int
    seed: int
    build: Path
    output: Path


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The bench-cpu command with its options."""
    parser = commands.add_parser(
        NAME,
        help="speed and memory on this machine's processors, alone or against other engines",
        description="Measures times to first token, decoding and memory of the engine, in process "
        "and over HTTP. With --peers the others are installed, each into an environment of its "
        "own, and measured in turn with it: the same model, prompts and lengths. Prints all beside "
        f"the goals and writes {NAME}.json and, with peers, {NAME}.png.",
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=tuple(PEERS),
        default=[],
        metavar="NAME",
        help=f"engines to compare with: {', '.join(PEERS)} (default: none)",
    )
    parser.add_argument(
        "--rounds",
        type=at_least(1, whole=True),
        metavar="N",
        help=f"times that each engine does each case; medians count (default {ROUNDS})",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="only cases with one of these texts in their names (default: all): "
        + ", ".join(case.stem for case in all_cases()),
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a look of a few minutes: 2 rounds of the shorter cases; nothing to publish",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id (default: the server's default model); llama.cpp needs "
        "one that is in a .gguf file",
    )
    parser.add_argument(
        "--threads",
        type=at_least(1, whole=True),
        metavar="N",
        help="threads of every engine (default: the processors that this process may use)",
    )
    parser.add_argument(
        "--kv-memory",
        type=at_least(1, whole=True),
        default=KV_GIB,
        metavar="GIB",
        help="memory for K and V of every engine, whole GiB (default %(default)s GiB)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="decides the prompts (default %(default)s)",
    )
    parser.add_argument(
        "--build",
        type=Path,
        default=Path("build"),
        metavar="DIR",
        help="folder for the peers' environments and models, some GB (default %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results, plot and logs (default %(default)s)",
    )
    return parser


def resolve(args: argparse.Namespace, parser: argparse.ArgumentParser) -> CpuOptions:
    """The options with their defaults; ends with a usage error where one cannot be."""
    if args.quick and args.only:
        parser.error("--quick and --only both choose the cases: give one of them")
    try:
        cases = chosen_cases(QUICK if args.quick else args.only)
    except ValueError as error:
        parser.error(f"--only: {error}")
    return CpuOptions(
        peers=tuple(dict.fromkeys(args.peers)),
        rounds=args.rounds or (2 if args.quick else ROUNDS),
        cases=tuple(cases),
        model=args.model,
        threads=args.threads,
        kv_gib=args.kv_memory,
        seed=args.seed,
        build=args.build,
        output=args.output,
    )
