"""simulate --serial: eviction rules compared on the prefix cache alone, beside the optimum."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean

import numpy as np
from tokenizers import Tokenizer
from tqdm import tqdm

from radix_engine.model.errors import ModelError
from radix_engine.model.source import resolve_model
from workloads.results import Figure, results_form, write_results
from workloads.simulation.loads import traces_named
from workloads.simulation.lru_curve import lru_curve
from workloads.simulation.mixing import mixed
from workloads.simulation.optimum import Optimum
from workloads.simulation.pauses import with_pauses
from workloads.simulation.serial import SerialCache
from workloads.simulation.serial_calls import SerialCall, calls_of, hit_rate, in_random_order
from workloads.simulation.serial_costs import cost_figures, costs_of, costs_table
from workloads.simulation.serial_options import OPTIMUM, SerialOptions
from workloads.simulation.serial_table import gap_closed, rates_table
from workloads.simulation.text_calls import TextTraces
from workloads.traces.block_trace import is_block_trace, read_block_trace
from workloads.traces.lines import TraceError

NAME = "simulate-serial"
_CURVE_POINTS = 64


@dataclass(frozen=True, slots=True)
class Workload:
    """The same calls in one order or several, in blocks of so many tokens."""

    orders: Sequence[Sequence[SerialCall]]
    block_tokens: int


def simulate_serial(options: SerialOptions) -> int:
    """Simulate, print and write; returns the exit status."""
    try:
        workload = _in_order(_workload(options), options)
    except (TraceError, ModelError) as problem:
        print(f"simulate: {problem}", file=sys.stderr)
        return 2
    curve = {} if options.pinned else _curve(workload, options.blocks)
    rates = {rule: dict(_rates(workload, rule, options.blocks)) for rule in options.rules}
    figures = {
        f"hit_rate.{rule}.{blocks}": Figure(rate, "share of prompt tokens", "higher")
        for rule, by_blocks in rates.items()
        for blocks, rate in by_blocks.items()
    }
    for rule, by_blocks in gap_closed(rates).items():
        for blocks, share in by_blocks.items():
            figures[f"gap_closed.{rule}.{blocks}"] = Figure(share, "share", "higher")
    asked = sum(call.prompt_tokens for call in workload.orders[0])
    costs = costs_of(rates, asked, options.prices)
    figures |= cost_figures(costs)
    data = {
        "options": {
            key: value for key, value in asdict(options).items() if key not in ("traces", "output")
        }
        | {"traces": traces_named(options.traces)},
        "calls": len(workload.orders[0]),
        "prompt_tokens": asked,
        "block_tokens": workload.block_tokens,
        "hit_rates": rates,
        "lru_curve": curve,
        "costs": costs,
    }
    path = write_results(options.output, NAME, figures, data)
    plot = options.output / f"{NAME}.png"
    # Imported here: it takes a second and only a finished run needs it.
    from workloads.simulation.serial_plot import draw

    draw(rates, curve, workload.block_tokens, _title(options), plot)
    if options.as_json:
        print(json.dumps(results_form(NAME, figures, data), indent=2, allow_nan=False))
        return 0
    print(f"\n{_title(options)}\n{rates_table(rates)}")
    if gap_closed(rates):
        print("hit rates; in brackets, how much of the way from LRU to the optimum")
    if costs:
        print(f"\n{costs_table(costs)}")
    print(f"written: {path}, {plot}", flush=True)
    return 0


def _workload(options: SerialOptions) -> Workload:
    if any(map(is_block_trace, options.traces)):
        if len(options.traces) > 1:
            raise TraceError(f"{options.traces[0]}: of traces of blocks, one can be simulated")
        trace = read_block_trace(options.traces[0])
        if options.longest_pause_s is not None:
            trace = with_pauses(trace, options.longest_pause_s)
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


def _in_order(workload: Workload, options: SerialOptions) -> Workload:
    """The calls as they come, or in random orders."""
    if not options.random_order:
        return workload
    calls = workload.orders[0]
    seeds = range(options.seed, options.seed + options.shuffles)
    orders = [in_random_order(calls, seed) for seed in seeds]
    return replace(workload, orders=orders)


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


def _curve(workload: Workload, sizes: Sequence[int]) -> dict[int, float]:
    """LRU's hit rate from half the smallest size to twice the largest: the mean over the orders."""
    least, most = max(1, min(sizes) // 2), 2 * max(sizes)
    steps = np.geomspace(least, most, _CURVE_POINTS)
    points = sorted({*sizes, *(round(size) for size in steps.tolist())})
    curves = [lru_curve(calls, workload.block_tokens, points) for calls in workload.orders]
    return {size: mean(curve[size] for curve in curves) for size in points}


def _title(options: SerialOptions) -> str:
    pinned = ", in random order" if options.random_order else ""
    pinned += ", running calls pinned" if options.pinned else ""
    longest = options.longest_pause_s
    pauses = "" if longest is None else f", pauses of at most {longest:g} s"
    return f"{traces_named(options.traces)}, one call at a time{pauses}{pinned}"
