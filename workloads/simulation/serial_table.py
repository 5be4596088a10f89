"""The hit rates of eviction rules as a table, and how much of what is possible each gets."""

from __future__ import annotations

from collections.abc import Mapping

from workloads.simulation.serial_options import OPTIMUM

Rates = Mapping[str, Mapping[int, float]]  # by rule, by blocks

# Where LRU is this close to the optimum, a share of the gap says nothing.
_LEAST_GAP = 0.002


def gap_closed(rates: Rates) -> dict[str, dict[int, float]]:
    """For each rule but LRU and the optimum: its gain over LRU, as a share of the optimum's; empty
    without both of these, and without those sizes where they are all but equal."""
    if "lru" not in rates or OPTIMUM not in rates:
        return {}
    lru, best = rates["lru"], rates[OPTIMUM]
    return {
        rule: {
            blocks: (rate - lru[blocks]) / (best[blocks] - lru[blocks])
            for blocks, rate in by_blocks.items()
            if best[blocks] - lru[blocks] >= _LEAST_GAP
        }
        for rule, by_blocks in rates.items()
        if rule not in ("lru", OPTIMUM)
    }


def rates_table(rates: Rates) -> str:
    """One line for each rule, one column for each size; in brackets the share of the gap closed."""
    closed = gap_closed(rates)
    sizes = list(next(iter(rates.values())))
    rows = [["rule", *(f"{blocks:,} blocks" for blocks in sizes)]]
    for rule, by_blocks in rates.items():
        cells = []
        for blocks in sizes:
            share = closed.get(rule, {}).get(blocks)
            cells.append(f"{by_blocks[blocks]:.4f}" + ("" if share is None else f" ({share:.0%})"))
        rows.append([rule, *cells])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
