"""check-clients: aiperf and canitoolcall against a server of our own."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from radix_engine.model.errors import ModelError
from radix_engine.model.source import ModelFolder, resolve_model
from workloads.clients.environments import CLIENTS, program, set_up
from workloads.clients.load import ENDPOINTS, REQUESTS, Told, counted, load_command, read_load
from workloads.clients.tool_probe import Findings, probe_command, read_probe
from workloads.cpu.peer_setup import SetupFailed, clean_environment
from workloads.own_server import (
    RunningServer,
    ServerFailed,
    free_port,
    log_tail,
    own_server,
    server_command,
)
from workloads.results import Figure, figures_table, write_results

NAME = "check-clients"
RUN_LIMIT_S = 600.0
# A small model talks until its context ends; and one whose template knows no tools still calls
# them where it is forced to, if it is told how.
SERVER_OPTIONS = ("--request-timeout", "20", "--tool-call-form", "hermes")


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The check-clients command with its options."""
    parser = commands.add_parser(
        NAME,
        help="clients that others wrote (aiperf, canitoolcall) against a server of our own",
        description="Installs aiperf (about 840 MB) and canitoolcall under build/clients, each in "
        "an environment of its own, starts a server, and has aiperf hold conversations on both "
        "APIs: the cached tokens that it reads must be those that the server counted. Then "
        "canitoolcall tries tools, whole and streamed. Ends with status 1 where a goal is missed. "
        f"Writes {NAME}.json.",
    )
    parser.add_argument(
        "--only",
        choices=tuple(CLIENTS),
        nargs="+",
        default=list(CLIENTS),
        help="these clients (default: all)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="folder, .gguf file or hub id for the server (default: the server's default model)",
    )
    parser.add_argument(
        "--build",
        type=Path,
        default=Path("build"),
        metavar="DIR",
        help="folder for the clients' environments (default %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for results and logs (default %(default)s)",
    )
    return parser


def check_clients(args: argparse.Namespace) -> int:
    """Install, run, print and write; returns the exit status."""
    output: Path = args.output
    figures: dict[str, Figure] = {}
    data: dict[str, Any] = {"clients": {name: CLIENTS[name] for name in args.only}}
    try:
        for client in args.only:
            set_up(args.build, client, output / f"{NAME}-{client}-install.log")
        model = resolve_model(args.model, progress=lambda line: print(line, file=sys.stderr))
        port = free_port()
        options = ([] if args.model is None else ["--model", args.model]) + [*SERVER_OPTIONS]
        with own_server(server_command(port, options), port, output / f"{NAME}-server.log") as own:
            if "aiperf" in args.only:
                for endpoint in ENDPOINTS:
                    told, seen = _loaded(args, own, model, endpoint)
                    figures |= load_figures(endpoint, told, seen)
                    data[endpoint] = {"told": asdict(told), "counted": asdict(seen)}
            if "canitoolcall" in args.only:
                found = _probed(args, own, model)
                figures |= probe_figures(found)
                data["canitoolcall"] = asdict(found)
    except (ServerFailed, SetupFailed, ModelError, ValueError) as error:
        print(f"{NAME}: FAILED: {error}", file=sys.stderr)
        return 1
    path = write_results(output, NAME, figures, data)
    problems = data.get("canitoolcall", {}).get("problems", ())
    print(figures_table(figures), *problems, f"written: {path}", sep="\n")
    return 0 if all(figure.met is not False for figure in figures.values()) else 1


def load_figures(endpoint: str, told: Told, seen: Told) -> dict[str, Figure]:
    """What aiperf said of a run beside what the server counted."""
    gaps = [
        abs(getattr(told, name) - getattr(seen, name))
        for name in ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
    ]
    return {
        f"aiperf_{endpoint}_requests": Figure(told.requests, "requests", "higher", REQUESTS),
        f"aiperf_{endpoint}_failed": Figure(told.failed or 0, "requests", "lower", 0),
        f"aiperf_{endpoint}_cached_share": Figure(told.cached_share, "ratio", "higher"),
        f"server_{endpoint}_cached_share": Figure(seen.cached_share, "ratio", "higher"),
        f"aiperf_{endpoint}_largest_gap": Figure(max(gaps), "tokens", "lower", 0),
    }


def probe_figures(found: Findings) -> dict[str, Figure]:
    """canitoolcall's rows. Which scenarios pass is the model's doing as much as ours; that each is
    answered, and streamed as it is whole, is ours."""
    rows = found.statuses
    return {
        "canitoolcall_passed": Figure(rows.get("pass", 0), "rows", "higher"),
        "canitoolcall_failed": Figure(rows.get("fail", 0), "rows", "lower"),
        "canitoolcall_errors": Figure(rows.get("error", 0), "rows", "lower", 0),
        "canitoolcall_stream_differences": Figure(found.differences, "rows", "lower", 0),
    }


def _loaded(
    args: argparse.Namespace, own: RunningServer, model: ModelFolder, endpoint: str
) -> tuple[Told, Told]:
    folder = (args.output / f"{NAME}-aiperf-{endpoint}").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    before = _counters(own.url)
    tool = program(args.build, "aiperf")
    command = load_command(tool, own.url, model.name, model.path, endpoint, folder)
    _run(command, args.output / f"{NAME}-aiperf-{endpoint}.log")
    return read_load(folder), counted(before, _counters(own.url))


def _probed(args: argparse.Namespace, own: RunningServer, model: ModelFolder) -> Findings:
    report = (args.output / f"{NAME}-canitoolcall.json").absolute()
    report.unlink(missing_ok=True)
    command = probe_command(program(args.build, "canitoolcall"), own.url, model.name, report)
    # Its status says whether all passed; what matters here is in the report.
    _run(command, args.output / f"{NAME}-canitoolcall.log", any_status=True)
    return read_probe(report)


def _run(command: list[str], log: Path, *, any_status: bool = False) -> None:
    """Run a client to its end. Raises SetupFailed where it fails or takes over ten minutes."""
    print(f"{Path(command[0]).name}: running (log: {log})", file=sys.stderr)
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                [str(Path(command[0]).absolute()), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                timeout=RUN_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SetupFailed(f"{command[0]} took over {RUN_LIMIT_S:.0f} s") from None
    if done.returncode and not any_status:
        raise SetupFailed(
            f"{command[0]} ended with status {done.returncode}; the end of {log}:\n{log_tail(log)}"
        )


def _environment() -> dict[str, str]:
    """This process's, without what makes aiperf take a tokenizer's folder for a hub's repository,
    and without proxies, which are not for 127.0.0.1."""
    strange = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HTTP_PROXY", "ALL_PROXY")
    kept = clean_environment().items()
    return {name: value for name, value in kept if name.upper() not in strange}


def _counters(url: str) -> Mapping[str, int]:
    """The server's sums since its start."""
    with httpx.Client(trust_env=False, timeout=30) as client:
        answer = client.get(f"{url}/server_info")
        answer.raise_for_status()
        counters: dict[str, int] = json.loads(answer.content)["counters"]
        return counters
