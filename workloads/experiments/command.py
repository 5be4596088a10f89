"""experiment: one of the experiments, or all, each with its picture."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from radix_engine.model.errors import ModelError
from workloads.experiments.catalogue import EXPERIMENTS
from workloads.experiments.experiment import Settings
from workloads.results import write_results
from workloads.traces.lines import TraceError

NAME = "experiment"
ALL = "all"


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The experiment command with its options."""
    names = "\n".join(f"  {name:<24}{each.question}" for name, each in EXPERIMENTS.items())
    parser = commands.add_parser(
        NAME,
        help="small experiments that show what a prefix cache does, with pictures",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs an experiment, prints what it found, and writes experiment-NAME.json "
        f"and experiment-NAME.png.\n\n{names}\n  {ALL:<24}all of them, in turn",
    )
    parser.add_argument(
        "name", choices=(*EXPERIMENTS, ALL), metavar="NAME", help="which one, or all"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="decides the made-up workloads (default %(default)s)",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="recency-vs-optimum: also a recorded trace, of block ids or of text (default: none)",
    )
    parser.add_argument(
        "--model",
        metavar="WHAT",
        help="ttft-vs-hit-rate: folder, .gguf file or hub id (default: the server's default model)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results and pictures (default %(default)s)",
    )
    return parser


def experiment(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Run, print and write; returns the exit status."""
    names = list(EXPERIMENTS) if args.name == ALL else [args.name]
    for option in ("trace", "model"):
        if getattr(args, option) is not None and not any(
            option in EXPERIMENTS[name].takes for name in names
        ):
            parser.error(f"--{option} does not apply to {args.name}")
    settings = Settings(args.seed, args.trace, args.model)
    for name in names:
        try:
            _run(name, settings, args.output)
        except (TraceError, ModelError) as problem:
            print(f"{NAME} {name}: {problem}", file=sys.stderr)
            return 1
    return 0


def _run(name: str, settings: Settings, output: Path) -> None:
    print(f"\n{name}: {EXPERIMENTS[name].question}", flush=True)
    outcome = EXPERIMENTS[name].run(settings)
    path = write_results(output, f"{NAME}-{name}", outcome.figures, outcome.data)
    picture = output / f"{NAME}-{name}.png"
    # Imported here: it takes a second and only a finished run needs it.
    from workloads.experiments.picture import draw

    draw(outcome.title, outcome.panels, picture)
    print(f"{outcome.title}\n{outcome.table}\nwritten: {path}, {picture}", flush=True)
