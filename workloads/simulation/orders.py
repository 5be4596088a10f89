"""simulate: orders of the waiting requests compared, on the scheduler and the cache that serve."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tqdm import tqdm

from workloads.results import figures_table, number, write_results
from workloads.simulation import report
from workloads.simulation.cost import MEASURED, CostModel, fit
from workloads.simulation.load import Load, blocks_for_share, distinct_tokens
from workloads.simulation.options import NAME, SimOptions, default_options
from workloads.simulation.report import Row
from workloads.simulation.run import BLOCK_SIZE, Setup, simulate
from workloads.simulation.shared_heads import Sizes, fewshot_load, zipf_load
from workloads.simulation.step_file import StepFileError, read_steps
from workloads.simulation.trace import trace_load
from workloads.traces.lines import TraceError

AT_ONCE = ", all at once"


@dataclass(frozen=True, slots=True)
class Simulated:
    """The rows of all orders, and ``rate``, arrivals a second. ``fcfs_at_once`` and ``best_order``
    (dfs, with no bound on overtaking) are of the same requests, all there at the start; None where
    that is not simulated."""

    rows: Mapping[str, Row]
    fcfs_at_once: Row | None = None
    best_order: Row | None = None
    rate: float | None = None


def simulate_orders(options: SimOptions) -> int:
    """Simulate, print and write; returns the exit status."""
    try:
        cost, error = _costs(options.fit)
        load, about = _load(options)
        distinct = distinct_tokens(load)
        blocks = _pool(load, options.pool_share)
    except (StepFileError, TraceError, ValueError) as problem:
        print(f"{NAME}: {problem}", file=sys.stderr)
        return 2
    setup = Setup(cost, options.limits, blocks, options.index)
    simulated = _all_orders(load, options, setup)
    named = report.named_figures(simulated.rows, simulated.best_order, goals=options.kind == "zipf")
    known = {
        f"fcfs{AT_ONCE}": simulated.fcfs_at_once,
        f"dfs{AT_ONCE}, unbounded": simulated.best_order,
    }
    at_once = {name: row for name, row in known.items() if row is not None}
    data = {
        "notes": report.NOTES,
        "options": _plain(options),
        "load": about,
        "distinct_tokens": distinct,
        "pool_blocks": blocks,
        "block_size": BLOCK_SIZE,
        "cost_model": asdict(cost),
        "cost_model_error": error,
        "arrivals_per_s": simulated.rate,
        "orders": {order: report.row_data(row) for order, row in simulated.rows.items()},
        "all_at_the_start": {name: report.row_data(row) for name, row in at_once.items()},
    }
    figures = {**named, **report.order_figures(simulated.rows)}
    path = write_results(options.output, NAME, figures, data)
    title = f"{about}; {blocks:,} blocks of {BLOCK_SIZE} tokens, {options.pool_share:g} of all"
    plot = options.output / f"{NAME}.png"
    draw_simulated(simulated, title, plot)
    shown = {**simulated.rows, **at_once}
    print(f"\n{title}\n{_cost_line(cost, error)}")
    if simulated.rate is not None:
        print(f"arrivals: {number(simulated.rate)} a second, {options.load:g} x what fcfs serves")
    print(f"\n{report.rows_table(shown)}\n\n{figures_table(named)}")
    if left_out := [key for key in report.GOALS if key not in named]:
        print(f"nothing to take these from: {', '.join(left_out)}")
    for line in report.not_served_lines(shown):
        print(line)
    print(f"written: {path}, {plot}", flush=True)
    return 0


def simulate_default(pool_share: float | None = None) -> Simulated:
    """What the command simulates without any option, or with another ``pool_share`` only."""
    options = default_options()
    load, _ = _load(options)
    blocks = _pool(load, pool_share or options.pool_share)
    return _all_orders(load, options, Setup(MEASURED, options.limits, blocks, options.index))


def _costs(file: Path | None) -> tuple[CostModel, float | None]:
    if file is None:
        return MEASURED, None
    try:
        return fit(read_steps(file))
    except ValueError as error:
        raise ValueError(f"--fit {file}: {error}") from error


def _load(options: SimOptions) -> tuple[Load, str]:
    """The load, and what it is in words."""
    sizes = Sizes(options.head_tokens, options.own_tokens, options.reply_tokens)
    words = f"{sizes.head:,} + {sizes.own:,} tokens, {sizes.reply:,} replied"
    if options.kind == "zipf":
        load = zipf_load(options.requests, options.heads, options.zipf_s, sizes, options.seed)
        heads = f"{options.heads:,} heads by Zipf({options.zipf_s:g})"
        return load, f"{options.requests:,} requests, {heads}, {words}, load {options.load:g}"
    if options.kind == "fewshot":
        load = fewshot_load(options.heads, options.questions, sizes, options.seed)
        heads = f"{options.heads:,} heads x {options.questions:,} questions"
        return load, f"{heads}, shuffled, all at the start, {words}"
    assert options.trace is not None
    load, selection = trace_load(
        options.trace,
        sessions=options.sessions,
        max_turns=options.max_turns,
        concurrency=options.concurrency,
        think_time_s=options.think_time_s,
        reply_tokens=options.reply_tokens,
        seed=options.seed,
    )
    name = f"{options.trace.parent.name}/{options.trace.name}"
    left_out = f"{selection.left_out_calls:,} calls left out" if selection.left_out_calls else "all"
    return load, (
        f"{name}: {load.num_requests:,} calls of {len(load.sessions):,} sessions ({left_out}), "
        f"{options.concurrency:,} in flight"
    )


def _pool(load: Load, share: float) -> int:
    try:
        return blocks_for_share(load, share, BLOCK_SIZE)
    except ValueError as error:
        raise ValueError(f"--pool-share {error}") from error


def _all_orders(load: Load, options: SimOptions, setup: Setup) -> Simulated:
    if options.kind != "zipf":
        rows = {order: _run(load, order, setup) for order in options.orders}
        # The requests of a batch are known at the start, those of sessions never.
        best = _best_order(load, setup) if options.kind == "fewshot" else None
        return Simulated(rows, best_order=best)
    fcfs = _run(load.at_once(), "fcfs", setup, AT_ONCE)
    best = _best_order(load, setup)
    makespan = fcfs.values["makespan_s"]
    assert makespan is not None
    rate = options.load * load.num_requests / makespan
    arriving = load.at_rate(rate)
    rows = {order: _run(arriving, order, setup) for order in options.orders}
    return Simulated(rows, fcfs, best, rate)


def _best_order(load: Load, setup: Setup) -> Row:
    """dfs over all requests at once, with no bound on how many may pass a waiting one."""
    limits = replace(setup.limits, max_passed_by=load.num_requests)
    return _run(load.at_once(), "dfs", replace(setup, limits=limits), f"{AT_ONCE}, unbounded")


def _run(load: Load, order: str, setup: Setup, how: str = "") -> Row:
    with tqdm(desc=f"{order}{how}", total=load.num_requests, unit="request") as bar:
        return report.row_of(simulate(load, order, setup, bar.update))


def _cost_line(cost: CostModel, error: float | None) -> str:
    off = "" if error is None else f"; off by {error:.1%} (median of the measured steps)"
    return (
        f"a step takes {cost.fixed * 1000:.3g} ms + {cost.per_token * 1e6:.3g} us a token + "
        f"{cost.per_pair * 1e6:.3g} us a pair + {cost.per_sequence * 1000:.3g} ms a sequence{off}"
    )


def _plain(options: SimOptions) -> dict[str, object]:
    """The options as JSON-able data."""
    return {
        key: str(value) if isinstance(value, Path) else value
        for key, value in asdict(options).items()
    }


def draw_simulated(simulated: Simulated, title: str, path: Path) -> None:
    """Write the plot of all orders as PNG."""
    # Imported here: it takes a second and only a finished run needs it.
    from workloads.simulation.plot import draw

    draw(simulated.rows, simulated.best_order, title, path)
