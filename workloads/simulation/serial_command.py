"""simulate --serial: eviction rules compared on the prefix cache alone, beside the optimum."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from tokenizers import Tokenizer
from tqdm import tqdm

from radix_engine.model.errors import ModelError
from radix_engine.model.source import resolve_model
from workloads.results import Figure, results_form, write_results
from workloads.simulation.mixing import mixed
from workloads.simulation.optimum import Optimum
from workloads.simulation.serial import SerialCache
from workloads.simulation.serial_calls import SerialCall, calls_of, hit_rate
from workloads.simulation.serial_options import OPTIMUM, SerialOptions
from workloads.simulation.serial_table import gap_closed, rates_table
from workloads.simulation.text_calls import TextTraces
from workloads.traces.block_trace import is_block_trace, read_block_trace
from workloads.traces.lines import TraceError

NAME = "simulate-serial"


@dataclass(frozen=True, slots=True)
class Workload:
    """The same calls in one order or several, in blocks of so many tokens."""

    orders: Sequence[Sequence[SerialCall]]
    block_tokens: int


def simulate_serial(options: SerialOptions) -> int:
    """Simulate, print and write; returns the exit status."""
    try:
        workload = _workload(options)
    except (TraceError, ModelError) as problem:
        print(f"simulate: {problem}", file=sys.stderr)
        return 2
    rates = {rule: dict(_rates(workload, rule, options.blocks)) for rule in options.rules}
    figures = {
        f"hit_rate.{rule}.{blocks}": Figure(rate, "share of prompt tokens", "higher")
        for rule, by_blocks in rates.items()
        for blocks, rate in by_blocks.items()
    }
    for rule, by_blocks in gap_closed(rates).items():
        for blocks, share in by_blocks.items():
            figures[f"gap_closed.{rule}.{blocks}"] = Figure(share, "share", "higher")
    data = {
        "options": {
            **asdict(options),
            "traces": [str(path) for path in options.traces],
            "output": str(options.output),
        },
        "calls": len(workload.orders[0]),
        "prompt_tokens": sum(call.prompt_tokens for call in workload.orders[0]),
        "block_tokens": workload.block_tokens,
        "hit_rates": rates,
    }
    path = write_results(options.output, NAME, figures, data)
    plot = options.output / f"{NAME}.png"
    # Imported here: it takes a second and only a finished run needs it.
    from workloads.simulation.serial_plot import draw

    draw(rates, workload.block_tokens, _title(options), plot)
    if options.as_json:
        print(json.dumps(results_form(NAME, figures, data), indent=2, allow_nan=False))
        return 0
    print(f"\n{_title(options)}\n{rates_table(rates)}\nwritten: {path}, {plot}", flush=True)
    return 0


def _workload(options: SerialOptions) -> Workload:
    if any(map(is_block_trace, options.traces)):
        if len(options.traces) > 1:
            raise TraceError(f"{options.traces[0]}: of traces of blocks, one can be simulated")
        trace = read_block_trace(options.traces[0])
        return Workload([calls_of(trace, pinned=options.pinned)], trace.block_tokens)
    folder = resolve_model(options.model, progress=lambda line: print(line, file=sys.stderr))
    tokenizer = Tokenizer.from_file(str(folder.path / "tokenizer.json"))
    reader = TextTraces(
        lambda text: tokenizer.encode(text, add_special_tokens=False).ids, options.block_tokens
    )
    sessions = [
        session for path in options.traces for session in reader.sessions(path, options.sessions)
    ]
    orders = [
        mixed(
            sessions,
            options.in_flight,
            options.seed + number,
            block_tokens=options.block_tokens,
            shuffle_rounds=options.shuffle_rounds,
            seconds_a_call=options.seconds_a_call,
        )
        for number in range(options.shuffles)
    ]
    return Workload(orders, options.block_tokens)


def _rates(workload: Workload, rule: str, sizes: Sequence[int]) -> Iterator[tuple[int, float]]:
    """The hit rate of one rule for each size of the memory: the mean over the orders."""
    with tqdm(desc=rule, total=len(sizes) * len(workload.orders), unit="run") as bar:
        for blocks in sizes:
            found = []
            for calls in workload.orders:
                if rule == OPTIMUM:
                    hits = Optimum(calls, blocks).hits()
                else:
                    hits = SerialCache(blocks, rule).hits(calls)
                found.append(hit_rate(calls, hits, workload.block_tokens))
                bar.update()
            yield blocks, mean(found)


def _title(options: SerialOptions) -> str:
    names = ", ".join(f"{path.parent.name}/{_stem(path)}" for path in options.traces)
    return f"{names}, one call at a time" + (", running calls pinned" if options.pinned else "")


def _stem(path: Path) -> str:
    return path.name.split(".")[0]
