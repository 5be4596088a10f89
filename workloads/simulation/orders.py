"""simulate: orders, eviction rules and sizes of the memory compared, on the scheduler and the cache
that serve."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tqdm import tqdm

from workloads.results import figures_table, number, results_form, write_results
from workloads.simulation import report
from workloads.simulation.arguments import NAME
from workloads.simulation.block_steps import BlockSteps
from workloads.simulation.cost import MEASURED, CostModel, fit
from workloads.simulation.grid import Combination, combinations, named
from workloads.simulation.load import Load, blocks_for_share, distinct_tokens
from workloads.simulation.loads import make_load
from workloads.simulation.options import SimOptions, default_options
from workloads.simulation.report import Row
from workloads.simulation.run import BLOCK_SIZE, Setup, StepCost, simulate
from workloads.simulation.step_file import StepFileError, read_steps
from workloads.traces.lines import TraceError

AT_ONCE = ", all at once"


@dataclass(frozen=True, slots=True)
class Simulated:
    """The rows of all combinations, by their names, and ``rate``, arrivals a second.
    ``fcfs_at_once`` and ``best_order`` (dfs, with no bound on overtaking) are of the same requests,
    all there at the start, with the first rule and size; None where that is not simulated."""

    rows: Mapping[str, Row]
    grid: Mapping[str, Combination]
    fcfs_at_once: Row | None = None
    best_order: Row | None = None
    rate: float | None = None


def simulate_orders(options: SimOptions) -> int:
    """Simulate, print and write; returns the exit status."""
    try:
        cost, error = _costs(options.fit)
        described = make_load(options)
        load, about = described.load, described.words
        distinct = distinct_tokens(load)
        sizes = options.blocks or _pools(load, options, distinct)
    except (StepFileError, TraceError, ValueError) as problem:
        print(f"{NAME}: {problem}", file=sys.stderr)
        return 2
    simulated = _all(load, options, sizes, cost)
    single = len(simulated.grid) == len(options.orders)
    goals = options.kind == "zipf" and single
    named_figures = report.named_figures(simulated.rows, simulated.best_order, goals=goals)
    known = {
        f"fcfs{AT_ONCE}": simulated.fcfs_at_once,
        f"dfs{AT_ONCE}, unbounded": simulated.best_order,
    }
    at_once = {name: row for name, row in known.items() if row is not None}
    block_tokens = _block_size(load) * load.id_tokens
    data = {
        "notes": report.NOTES,
        "options": _plain(options),
        "load": about,
        "distinct_tokens": distinct * load.id_tokens,
        "pool_blocks": list(sizes) if len(sizes) > 1 else sizes[0],
        "block_size": block_tokens,
        "cost_model": asdict(cost),
        "cost_model_error": error,
        "arrivals_per_s": simulated.rate,
        "orders": {
            name: {**asdict(simulated.grid[name]), **report.row_data(row)}
            for name, row in simulated.rows.items()
        },
        "all_at_the_start": {name: report.row_data(row) for name, row in at_once.items()},
    }
    figures = {**named_figures, **report.order_figures(simulated.rows)}
    path = write_results(options.output, NAME, figures, data)
    memory = (
        f"{sizes[0]:,} blocks of {block_tokens} tokens"
        if len(sizes) == 1
        else (f"{len(sizes)} sizes of the memory, blocks of {block_tokens} tokens")
    )
    if not options.blocks:
        memory += f", {' and '.join(f'{share:g}' for share in options.pool_shares)} of all"
    title = f"{about}; {memory}"
    plot = options.output / f"{NAME}.png"
    draw_simulated(simulated, title, plot, block_tokens)
    if options.as_json:
        print(json.dumps(results_form(NAME, figures, data), indent=2, allow_nan=False))
        return 0
    shown = {**simulated.rows, **at_once}
    print(f"\n{title}\n{_cost_line(cost, error)}")
    if simulated.rate is not None:
        print(f"arrivals: {number(simulated.rate)} a second, {options.load:g} x what fcfs serves")
    print(f"\n{report.rows_table(shown)}\n\n{figures_table(named_figures)}")
    if left_out := [key for key in report.GOALS if key not in named_figures]:
        print(f"nothing to take these from: {', '.join(left_out)}")
    for line in report.remarks(shown):
        print(line)
    print(f"written: {path}, {plot}", flush=True)
    return 0


def simulate_default(pool_share: float | None = None) -> Simulated:
    """What the command simulates without any option, or with another ``pool_share`` only."""
    options = default_options()
    if pool_share is not None:
        options = replace(options, pool_shares=(pool_share,))
    load = make_load(options).load
    return _all(load, options, _pools(load, options, distinct_tokens(load)), MEASURED)


def _costs(file: Path | None) -> tuple[CostModel, float | None]:
    if file is None:
        return MEASURED, None
    try:
        return fit(read_steps(file))
    except ValueError as error:
        raise ValueError(f"--fit {file}: {error}") from error


def _pools(load: Load, options: SimOptions, distinct: int) -> tuple[int, ...]:
    """The sizes of the memory in blocks, by shares of the distinct tokens."""
    size = _block_size(load)
    if options.traces:  # a session that does not fit ends
        return tuple(max(1, int(distinct * share) // size) for share in options.pool_shares)
    try:
        return tuple(blocks_for_share(load, share, size) for share in options.pool_shares)
    except ValueError as error:
        raise ValueError(f"--pool-share {error}") from error


def _block_size(load: Load) -> int:
    """Token ids in a block."""
    return BLOCK_SIZE if load.id_tokens == 1 else 1


def _all(load: Load, options: SimOptions, sizes: tuple[int, ...], cost: CostModel) -> Simulated:
    grid = named(combinations(options.orders, options.evictions, sizes, options.max_sessions))
    first = _setup(next(iter(grid.values())), load, options, cost)
    if options.kind != "zipf":
        rows = _rows(load, grid, options, cost)
        # The requests of a batch are known at the start, those of sessions never.
        best = _best_order(load, first) if options.kind == "fewshot" else None
        return Simulated(rows, grid, best_order=best)
    fcfs = _run(load.at_once(), "fcfs", first, f"fcfs{AT_ONCE}")
    best = _best_order(load, first)
    makespan = fcfs.values["makespan_s"]
    assert makespan is not None
    rate = options.load * load.num_requests / makespan
    rows = _rows(load.at_rate(rate), grid, options, cost)
    return Simulated(rows, grid, fcfs, best, rate)


def _rows(
    load: Load, grid: Mapping[str, Combination], options: SimOptions, cost: CostModel
) -> dict[str, Row]:
    rows = {}
    for name, each in grid.items():
        row = _run(load, each.order, _setup(each, load, options, cost), name)
        rows[name] = report.with_costs(row, options.prices)
    return rows


def _setup(each: Combination, load: Load, options: SimOptions, cost: CostModel) -> Setup:
    limits, ids = options.limits, load.id_tokens
    steps: StepCost = cost
    if ids > 1:
        # A step over ids stands for as many steps as an id has tokens: the budget stays.
        steps = BlockSteps(cost, ids, limits.step_tokens)
    context = options.context_length
    return Setup(
        steps,
        replace(limits, max_sessions=each.max_sessions),
        each.blocks,
        options.index,
        each.eviction,
        _block_size(load),
        None if context is None else max(2, context // ids),
    )


def _best_order(load: Load, setup: Setup) -> Row:
    """dfs over all requests at once, with no bound on how many may pass a waiting one."""
    limits = replace(setup.limits, max_passed_by=load.num_requests)
    at_once = load.at_once()
    return _run(at_once, "dfs", replace(setup, limits=limits), f"dfs{AT_ONCE}, unbounded")


def _run(load: Load, order: str, setup: Setup, name: str) -> Row:
    with tqdm(desc=name, total=load.num_requests, unit="request") as bar:
        return report.row_of(simulate(load, order, setup, bar.update), load.id_tokens)


def _cost_line(cost: CostModel, error: float | None) -> str:
    off = "" if error is None else f"; off by {error:.1%} (median of the measured steps)"
    return (
        f"a step takes {cost.fixed * 1000:.3g} ms + {cost.per_token * 1e6:.3g} us a token + "
        f"{cost.per_pair * 1e6:.3g} us a pair + {cost.per_sequence * 1000:.3g} ms a sequence{off}"
    )


def _plain(options: SimOptions) -> dict[str, object]:
    """The options as JSON-able data, without where files lie."""

    def plain(value: object) -> object:
        if isinstance(value, Path):
            return f"{value.parent.name}/{value.name}"
        return [plain(each) for each in value] if isinstance(value, tuple) else value

    return {key: plain(value) for key, value in asdict(options).items() if key != "output"}


def draw_simulated(simulated: Simulated, title: str, path: Path, block_tokens: int = 16) -> None:
    """Write the plot of all combinations as PNG."""
    # Imported here: it takes a second and only a finished run needs it.
    from workloads.simulation import plot

    if len({each.blocks for each in simulated.grid.values()}) > 1:
        plot.draw_sizes(simulated.rows, simulated.grid, block_tokens, title, path)
    else:
        plot.draw(simulated.rows, simulated.best_order, title, path)
