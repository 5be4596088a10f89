"""check-gpu-offline: FlashInfer's own host code under our attention, without a GPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tqdm import tqdm

from workloads.gpu import offline_modules as modules
from workloads.gpu.offline_lines import Failed, lines_of
from workloads.gpu.offline_report import NOTES, Found, graphs_table, make_figures, steps_table
from workloads.gpu.offline_toolkit import (
    Missing,
    Toolkit,
    build_stubs,
    find_compiler,
    find_ninja,
    find_toolkit,
)
from workloads.option_types import at_least
from workloads.results import figures_table, write_results

NAME = "check-gpu-offline"
BUILD = Path("build") / "flashinfer"
_SHOWN_PROBLEMS = 20


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The check-gpu-offline command with its options."""
    parser = commands.add_parser(
        NAME,
        help="check the GPU engine's attention against FlashInfer's host code, without a GPU",
        description="Compiles FlashInfer's attention modules for capability 9.0 and has them plan "
        "and launch steps of many shapes, with a stand-in for the CUDA runtime that records "
        "launches. Checks plans, launches, the workspace and that CUDA graphs fit every context. "
        f"No kernel runs. Prints tables and writes {NAME}.json. Needs nvcc, and some twenty "
        "minutes the first time; what it compiled is kept in build/flashinfer. Ends with status 1 "
        "where a check fails.",
    )
    parser.add_argument(
        "--jobs",
        type=at_least(1, whole=True),
        default=1,
        metavar="N",
        help="compilers to run at once (default %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for the results (default %(default)s)",
    )
    return parser


def check_gpu_offline(output: Path, jobs: int) -> int:
    """Compile, check, print and write; returns the exit status."""
    try:
        found = run_checks(jobs)
    except Missing as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    except Failed as error:
        print(f"{NAME} could not be run: {error}", file=sys.stderr)
        return 1
    figures, problems = make_figures(found), found.problems
    data = {
        "notes": NOTES,
        "steps": found.steps,
        "least_workspaces": found.workspaces,
        "graphs": found.graphs,
        "modules": found.asked,
        "problems": problems,
    }
    path = write_results(output, NAME, figures, data)
    print(f"\n{steps_table(found)}\n\n{graphs_table(found)}\n\n{figures_table(figures)}")
    for problem in problems[:_SHOWN_PROBLEMS]:
        print(f"FAILED {problem}")
    if len(problems) > _SHOWN_PROBLEMS:
        print(f"and {len(problems) - _SHOWN_PROBLEMS} more")
    print(f"written: {path}", flush=True)
    return 1 if problems else 0


def run_checks(jobs: int) -> Found:
    """Compile what is missing, then run the checks in a process of their own.

    Raises `Missing` for what has to be installed first, `Failed` where either cannot be run.
    """
    flashinfer, tvm_ffi = _installed("flashinfer-python"), _installed("apache-tvm-ffi")
    compiler, ninja, toolkit = find_compiler(), find_ninja(), find_toolkit()
    folder = modules.kept_folder(BUILD.absolute(), flashinfer, tvm_ffi, toolkit.release)
    runtime, driver = build_stubs(folder / "stubs", toolkit, compiler)
    compiled = modules.write_package(folder, flashinfer, toolkit.release)
    print(f"nvcc {toolkit.release} of {toolkit.home}; modules are kept in {folder}", flush=True)
    environment = child_environment(os.environ, folder, toolkit, ninja, jobs)
    names = _compile(compiled, environment, folder / "compile.log")
    found = Found()
    # FlashInfer takes its modules from this package, which comes first.
    environment["PYTHONPATH"] = os.pathsep.join((str(folder), environment["PYTHONPATH"]))
    arguments = [str(runtime), str(driver), str(compiled)]
    lines = lines_of("workloads.gpu.offline_worker", arguments, environment, folder / "check.log")
    with closing(lines), tqdm(desc="steps and graphs", unit="check") as bar:
        for line in lines:
            if "steps" in line:
                bar.reset(total=line["steps"] + line["graphs"])
            elif "batch" in line or "graph" in line:
                bar.update()
            found.add(line)
    found.outside.extend(sorted(set(found.asked) - names - set(found.outside)))
    return found


def child_environment(
    base: Mapping[str, str], folder: Path, toolkit: Toolkit, ninja: Path, jobs: int
) -> dict[str, str]:
    """What FlashInfer reads: where to compile, with what, and for which card."""
    # Settings of the user's for FlashInfer would make it compile or look for something else; and
    # modules name more functions of the runtime than the stand-in has.
    dropped = ("LD_BIND_NOW", "CUDA_PATH")
    kept = {k: v for k, v in base.items() if k not in dropped and not k.startswith("FLASHINFER_")}
    root = str(Path(__file__).resolve().parents[2])
    return {
        **kept,
        "PATH": os.pathsep.join((kept.get("PATH", os.defpath), str(ninja.parent))),
        "PYTHONPATH": os.pathsep.join(filter(None, (root, kept.get("PYTHONPATH")))),
        "CUDA_HOME": str(toolkit.home),
        "MAX_JOBS": str(jobs),
        "FLASHINFER_CUDA_ARCH_LIST": modules.CAPABILITY,
        "FLASHINFER_WORKSPACE_BASE": str(folder),
        "FLASHINFER_EXTRA_LDFLAGS": f"'-L{folder / 'stubs'}'",
        # Its norms are otherwise compiled by a package that is not installed here.
        "FLASHINFER_USE_CUDA_NORM": "1",
    }


def _compile(compiled: Path, environment: Mapping[str, str], log: Path) -> set[str]:
    """Have all modules compiled; their names."""
    names: set[str] = set()
    lines = lines_of("workloads.gpu.offline_modules", [str(compiled)], environment, log)
    with closing(lines), tqdm(desc="modules", total=len(modules.MODULES), unit="module") as bar:
        for line in lines:
            if "module" in line:
                bar.set_postfix_str("" if line["kept"] else f"compiling: {line['module']}")
            else:
                names.add(line["done"])
                bar.update()
    return names


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise Missing(f"{package} is not installed; make test installs it") from None
