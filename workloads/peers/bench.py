"""bench-peers: the same agents against our server and other engines', in turn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workloads.agents.compared import Of, pair_ratio, results
from workloads.agents.journal import JournalError, open_journal
from workloads.agents.legs import OpenServer, contradictions, measure
from workloads.agents.output import print_tables, write_all
from workloads.agents.plan import Plan, fingerprint, make_plan
from workloads.agents.run import How, Run
from workloads.agents.targets import Target
from workloads.cpu.peer_setup import PEERS, SetupFailed, clean_environment
from workloads.own_server import server_command
from workloads.peers.fleet import Fleet, Started
from workloads.peers.options import NAME, OURS, PeerOptions
from workloads.results import Figure, figures_table
from workloads.traces.lines import TraceError

if TYPE_CHECKING:
    from radix_engine.model.source import ModelFolder
    from workloads.cpu.engines import Starter

# At most half of the time that vLLM takes.
GOAL = 0.5
IDLE_SHARE = 0.05  # of a core: more is said


def bench_peers(options: PeerOptions) -> int:
    """Run the benchmark; returns the exit status: 0, or 1 where something was wrong."""
    from radix_engine.model.errors import ModelError
    from radix_engine.model.source import resolve_model

    try:
        folder = resolve_model(options.model, progress=lambda line: print(line, file=sys.stderr))
        starter = _starter(options, folder)
        for peer in options.peers:
            starter.prepare(peer)
    except (ModelError, ValueError, SetupFailed, OSError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    if options.only_install:
        print(f"{NAME}: installed: {', '.join(options.peers) or 'nothing was asked for'}")
        return 0

    def start(name: str, port: int) -> Started:
        return _ours(options, starter.threads, port) if name == OURS else _vllm(starter, port)

    targets = all_targets(options)
    with Fleet(targets, start, options.output) as fleet:
        status = compare(options, targets, fleet.turn)
        if fleet.idle_share > IDLE_SHARE:
            print(f"servers that waited used {fleet.idle_share:.1%} of a core: figures may be off")
    return status


def all_targets(options: PeerOptions) -> tuple[Target, ...]:
    """Ours first, then the peers that are started, then those that run already."""
    return (Target(OURS), *(Target(peer) for peer in options.peers), *options.running)


def compare(options: PeerOptions, targets: Sequence[Target], open_server: OpenServer) -> int:
    """Replay the load against every target in turn and write the result; the exit status."""
    try:
        plan = make_plan(options.load)
        asked = fingerprint(plan, targets, _more(options))
        path = options.output / f"{NAME}.journal.jsonl"
        journal = open_journal(path, asked, options.resume)
    except (TraceError, JournalError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    print("\n".join((f"{NAME}: {plan.title}", *(f"  {note}" for note in plan.notes))), flush=True)
    try:
        measured = measure(plan, targets, _how(plan), open_server, journal)
    finally:
        journal.close()
    runs, problems = measured.runs, measured.problems
    if runs:
        print_tables(runs, options.slo)
        problems += contradictions(runs)
        goals = {} if plan.load.rates else over_peers(runs)
        print(f"\n{figures_table(goals)}\n")
        write_all(NAME, options.output, plan, runs, problems, options.slo, asked, goals)
    for problem in problems:
        print(f"{NAME}: FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


def over_peers(runs: Sequence[Run]) -> dict[str, Figure]:
    """Ours over each peer's, the median of the rounds' ratios: wall time and p99 of TTFT."""
    found = {result.target: result for result in results(runs)}
    ours = found.pop(OURS, None)
    figures: dict[str, Figure] = {}
    if ours is None:
        return figures
    for name, peer in found.items():
        goal = GOAL if name == "vllm" else None
        for key, of in _OVER:
            if (ratio := pair_ratio(of, ours, peer)) is not None:
                figures[f"agents_{key}_over_{name}"] = Figure(ratio, "ratio", "lower", goal)
    return figures


_OVER: tuple[tuple[str, Of], ...] = (
    ("wall", lambda run: run.replay.wall_s),
    ("ttft_p99", lambda run: run.summary.all.p99_ms),
)


def _how(plan: Plan) -> How:
    return How(
        max_tokens=plan.load.max_tokens,
        concurrency=plan.load.concurrency or len(plan.sessions),
        warm_up=True,
        empty=True,
        refusals=bool(plan.load.rates),
    )


def _more(options: PeerOptions) -> dict[str, object]:
    return {
        "model": options.model,
        "threads": options.threads,
        "K and V of each (GiB)": options.kv_gib,
        "packages": [package for peer in options.peers for package in PEERS[peer].packages],
    }


def _starter(options: PeerOptions, folder: ModelFolder) -> Starter:
    # Imported here: torch takes seconds, and a wrong option should not wait for it.
    from workloads.cpu.engines import Starter
    from workloads.cpu.options import CpuOptions

    cpu = CpuOptions(
        peers=options.peers,
        rounds=1,
        cases=(),
        model=options.model,
        threads=options.threads,
        kv_gib=options.kv_gib,
        seed=options.load.seed,
        build=options.build,
        output=options.output,
    )
    return Starter(cpu, folder)


def _ours(options: PeerOptions, threads: int, port: int) -> Started:
    flags = ["--kv-memory", f"{options.kv_gib}GiB", "--threads", str(threads)]
    flags += ["--model", options.model] if options.model is not None else []
    return Started(server_command(port, flags), clean_environment())


def _vllm(starter: Starter, port: int) -> Started:
    command, environment = starter.vllm_server(port)
    # Cached tokens in the answers, and a path that empties the cache.
    more = ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    # Else it calls the model by its folder.
    more += ["--served-model-name", starter.folder.name]
    return Started([*command, *more], environment | {"VLLM_SERVER_DEV_MODE": "1"})
