"""bench-cpu: this machine's processors, ours alone or in turn with other engines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workloads.cpu import report
from workloads.cpu.cases import OURS, PEER_CONTENDERS, Case, Contender
from workloads.cpu.options import NAME, CpuOptions
from workloads.cpu.prompts import Prompts
from workloads.cpu.run import Race, Start, estimated_s
from workloads.results import figures_table, number, write_results

# Beside its K and V, an engine with a small model takes less than this.
ENGINE_GIB = 1.0
START_S = 15.0  # about, of one engine
IDLE_SHARE = 0.05  # of a core: more is said


def bench_cpu(options: CpuOptions) -> int:
    """Run the benchmark; returns the exit status: 0, or 1 where ours could not be measured."""
    from radix_engine.model.errors import ModelError
    from radix_engine.model.source import resolve_model

    if problem := memory_problem(options, available_gib()):
        print(f"{NAME}: {problem}", file=sys.stderr)
        return 1
    try:
        folder = resolve_model(options.model, progress=lambda line: print(line, file=sys.stderr))
    except (ModelError, ValueError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    # Imported here: torch takes seconds, and a wrong option should not wait for it.
    from radix_engine.model.config import read_config
    from server.text import TextCodec
    from workloads.cpu.engines import Starter, quantization_problem

    starter = Starter(options, folder)
    config = read_config(folder.path)
    prompts = Prompts(TextCodec(folder.path).encode, config.vocab_size, options.seed)
    per_token = config.kv_bytes_per_token(starter.dtype)
    race = Race(options.rounds, prompts, options.kv_gib * 2**30 // per_token)
    unable = {"ours-q4": quantization_problem()}
    for peer in options.peers:
        _prepare(starter, peer, race)
    return run(options, race, starter.start, unable, config.context_length)


def run(
    options: CpuOptions,
    race: Race,
    start: Start,
    unable: dict[str, str | None],
    context_length: int,
) -> int:
    """Start the contenders, let them race, write the result; the exit status.

    ``unable``: why a contender cannot take part, by name.
    """
    cases = [case for case in options.cases if _within(case, context_length, race)]
    contenders = taking_part(options.peers, cases)
    for contender in list(contenders):
        reason = unable.get(contender.name) or race.measured.left_out.get(contender.engine)
        if reason:
            contenders.remove(contender)
            race.measured.left_out.setdefault(contender.name, reason)
            print(f"left out: {contender.name}: {reason}", file=sys.stderr)
    minutes = (
        estimated_s(cases, contenders, options.rounds) + START_S * (len(contenders) + 1)
    ) / 60
    print(
        f"{NAME}: {len(cases)} cases x {options.rounds} rounds, {len(contenders)} engines "
        f"({', '.join(each.name for each in contenders)}); about {minutes:.0f} min with a small "
        "model on 2 idle cores",
        flush=True,
    )
    try:
        _start_all(contenders, race, start)
        race.run(cases)
    finally:
        race.stop()
    return _finish(options, cases, race)


def taking_part(peers: Sequence[str], cases: Sequence[Case]) -> list[Contender]:
    """Ours and the peers', as far as they have anything to do."""
    everybody = [*OURS, *(each for peer in peers for each in PEER_CONTENDERS[peer])]
    return [each for each in everybody if any(case.has(each) for case in cases)]


def memory_problem(options: CpuOptions, available: float) -> str | None:
    """Why the engines do not fit the free memory (GiB) together; None where they do."""
    count = len(taking_part(options.peers, options.cases))
    needed = count * (options.kv_gib + ENGINE_GIB)
    if needed <= available:
        return None
    return (
        f"{count} engines with {options.kv_gib} GiB of K and V each need about {needed:.0f} GiB, "
        f"and {available:.1f} GiB are free; take a smaller --kv-memory, fewer peers, or --only"
    )


def available_gib() -> float:
    """Memory that can be had without swapping (GiB)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def _prepare(starter: Any, peer: str, race: Race) -> None:
    from workloads.cpu.peer_setup import SetupFailed

    try:
        starter.prepare(peer)
    except (SetupFailed, OSError) as error:
        race.measured.left_out[peer] = str(error)


def _within(case: Case, context_length: int, race: Race) -> bool:
    """Whether a case's prompts and answers fit the model's context; says so where not."""
    longest = case.kv_tokens // case.streams
    if longest <= context_length:
        return True
    reason = f"it needs a context of {longest:,} tokens; the model has {context_length:,}"
    race.measured.skipped[case.stem] = reason
    print(f"skipped: {case.stem}: {reason}", file=sys.stderr)
    return False


def _start_all(contenders: Sequence[Contender], race: Race, start: Start) -> None:
    """Start one after the other; the time of a second start is what counts."""
    for contender in contenders:
        print(f"starting {contender.name}", file=sys.stderr, flush=True)
        first_of_its_kind = all(each.engine != contender.engine for each in race.engines)
        if not race.add(contender, start) or not first_of_its_kind:
            continue
        race.engines.pop(contender).stop()
        race.add(contender, start)


def _finish(options: CpuOptions, cases: Sequence[Case], race: Race) -> int:
    measured = race.measured
    idle = race.idle_cpu_s / race.idle_wall_s if race.idle_wall_s else 0.0
    if idle > IDLE_SHARE:
        print(f"engines that waited used {idle:.1%} of a core: figures may be disturbed")
    problems = [] if any(each.name == "ours" for each in race.measured.memory_mib) else ["ours"]
    figures = report.figures(cases, measured)
    print(f"\n{figures_table(figures)}\n")
    compared = report.comparisons(cases, measured)
    if compared:
        print(f"{report.comparison_table(compared)}\n")
    for what, reason in {**measured.skipped, **measured.left_out}.items():
        print(f"not measured: {what}: {reason.splitlines()[0]}")
    data = {
        "rounds": options.rounds,
        "model": options.model,
        "kv_gib_each": options.kv_gib,
        "idle_engines_cpu_share": number(idle),
        "not_measured": {**measured.skipped, **measured.left_out},
        "values": _by_key(cases, measured),
        "walls_s_nothing_shared": {
            contender.name: values
            for walls in measured.walls.values()
            for contender, values in walls.items()
        },
        "peers": _versions(options.peers),
    }
    path = write_results(options.output, NAME, figures, data)
    written = str(path)
    if compared:
        from workloads.cpu.plot import draw

        plot = options.output / f"{NAME}.png"
        draw(compared, f"{options.model or 'default model'}, ours against peers", plot)
        written += f", {plot}"
    print(f"written: {written}", flush=True)
    for problem in problems:
        print(f"{NAME}: FAILED: {problem} was not measured to the end", file=sys.stderr)
    return 1 if problems else 0


def _by_key(cases: Sequence[Case], measured: report.Measured) -> dict[str, list[float]]:
    return {
        case.key(contender) if contender.cache else f"{case.stem}, {contender.name}": values
        for case in cases
        for contender, values in measured.values.get(case.stem, {}).items()
    }


def _versions(peers: Sequence[str]) -> dict[str, list[str]]:
    from workloads.cpu.peer_setup import PEERS

    return {peer: list(PEERS[peer].packages) for peer in peers}
