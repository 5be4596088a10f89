"""check-gpu: whether this machine's GPU computes right, and how fast.

Needs torch and FlashInfer, and packages to read models for the part "model" only; so it can be run
by an interpreter that has no more: python -m workloads.gpu.check. It has not run on a GPU yet.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from workloads.option_types import at_least
from workloads.results import folder_problem

if TYPE_CHECKING:
    from workloads.gpu.outcomes import PartResult
    from workloads.gpu.parts import Bench

NAME = "check-gpu"
PARTS = ("ops", "graphs", "cascade", "model", "timings")
LAYERS = 32


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The check-gpu command with its options."""
    parser = commands.add_parser(
        NAME,
        help="check on a GPU that results are right, and measure how fast they come",
        description=_DESCRIPTION,
    )
    add_options(parser)
    return parser


_DESCRIPTION = (
    "Compares what FlashInfer computes on this machine's GPU with torch, recorded steps with "
    "computed ones, and a model with its own float32 runner on the processor; then times steps of "
    f"a model of Llama-3.1-8B's shape. Prints tables and writes {NAME}.json. Takes less than 3 "
    "minutes once FlashInfer has compiled its kernels, which the first run does. Ends with 1 where "
    "a result is wrong or a part cannot be run, with 2 where there is no GPU that fits."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Its options alone, for a parser of its own."""
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        metavar="PART",
        help=f"run these parts only: {', '.join(PARTS)}",
    )
    parser.add_argument(
        "--layers",
        type=at_least(1, whole=True),
        default=LAYERS,
        metavar="N",
        help="layers of the timed model, where all do not fit; times are scaled to all "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--windows",
        action="store_true",
        help="check attention with a sliding window too: more kernels to compile",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id for the part model (default: the server's default)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="decides the inputs (default: another one each time, which is printed)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for the results (default %(default)s)",
    )


def check_gpu(args: argparse.Namespace) -> int:
    """Check, print and write; returns the exit status."""
    # Imported here: torch takes seconds, and this module is read for every command's help.
    import torch

    from radix_engine.gpu.fit import load_flashinfer, read_gpu, why_not
    from workloads.gpu.outcomes import NO_GPU
    from workloads.gpu.parts import RUNS, Bench

    facts = read_gpu()
    if (line := why_not(facts)) is not None:
        print(f"{NAME}: {line}", file=sys.stderr)
        return NO_GPU
    seed = SystemRandom().randrange(2**31) if args.seed is None else args.seed
    bench = Bench(
        load_flashinfer(),
        torch.device("cuda", facts.index),
        seed,
        args.model,
        args.layers,
        args.windows,
        _say,
    )
    _say(f"{facts.device}, FlashInfer {facts.flashinfer}, torch {torch.__version__}, seed {seed}")
    runs = {name: RUNS[name] for name in PARTS if name in args.only}
    results, problems = run_parts(runs, bench)
    machine = {"device": facts.device, "driver": facts.driver, "cuda": facts.torch_cuda}
    return finish(args.output, results, problems, {**machine, "seed": seed})


def run_parts(
    runs: Mapping[str, Callable[[Bench], PartResult]], bench: Bench
) -> tuple[dict[str, PartResult], dict[str, str]]:
    """The parts' results, and of those that could not be run why, in one line each."""
    results: dict[str, PartResult] = {}
    problems: dict[str, str] = {}
    for name, run in runs.items():
        began = time.perf_counter()
        try:
            results[name] = run(bench)
        except Exception as error:  # the other parts may still tell something
            line = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            problems[name] = line
            _say(f"{name}: could not be run: {line}")
            continue
        _say(f"{name}: {time.perf_counter() - began:.1f} s")
    return results, problems


def finish(
    output: Path,
    results: Mapping[str, PartResult],
    problems: Mapping[str, str],
    machine: Mapping[str, object],
) -> int:
    """Print and write; returns the exit status."""
    from workloads.gpu import outcomes
    from workloads.results import figures_table, write_results

    checks = [check for result in results.values() for check in result.checks]
    figures = outcomes.merged_figures(results, problems)
    data = {"gpu": dict(machine), **outcomes.data_of(results, problems)}
    path = write_results(output, NAME, figures, data)
    if checks:
        print(f"\n{outcomes.checks_table(checks)}\n")
    print(figures_table(figures))
    for name, line in problems.items():
        print(f"{NAME}: {name} could not be run: {line}", file=sys.stderr)
    if wrong := [f"{check.part}: {check.name}" for check in checks if not check.ok]:
        print(f"{NAME}: WRONG: {'; '.join(wrong)}", file=sys.stderr)
    print(f"written: {path}", flush=True)
    return outcomes.exit_status(results, problems)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command by itself."""
    parser = argparse.ArgumentParser(prog="python -m workloads.gpu.check", description=_DESCRIPTION)
    add_options(parser)
    args = parser.parse_args(arguments)
    if problem := folder_problem(args.output):
        parser.error(f"--output: {problem}")
    try:
        return check_gpu(args)
    except KeyboardInterrupt:
        print("\nstopped; nothing was written", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
