"""The picture of a comparison of eviction rules: hit rate against memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

import matplotlib

from workloads.simulation.plot import short
from workloads.simulation.serial_options import OPTIMUM
from workloads.simulation.serial_table import Rates

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

# Colours that colour-blind readers can tell apart, lines and markers for print.
_STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#E69F00", "-", "v"),
    ("#56B4E9", "--", "P"),
)


def draw(
    rates: Rates, curve: Mapping[int, float], block_tokens: int, title: str, path: Path
) -> None:
    """Write the plot as PNG. Sizes are blocks of so many tokens; the optimum is drawn in black, as
    the ceiling that it is. ``curve``: LRU's hit rate by size, for every size there is."""
    figure, axes = plt.subplots(figsize=(8.0, 5.0), layout="constrained")
    if curve:
        axes.plot(
            [blocks * block_tokens for blocks in curve],
            list(curve.values()),
            color="#999999",
            linewidth=4.0,
            alpha=0.5,
            label="lru, every size (one pass)",
        )
    styles = iter(_STYLES * len(rates))
    for rule, by_blocks in rates.items():
        sizes = sorted(by_blocks)
        colour, line, marker = ("#000000", "-", "") if rule == OPTIMUM else next(styles)
        axes.plot(
            [blocks * block_tokens for blocks in sizes],
            [by_blocks[blocks] for blocks in sizes],
            color=colour,
            linestyle=line,
            marker=marker or ".",
            linewidth=1.2 if rule == OPTIMUM else 2.0,
            label=rule,
        )
    axes.set_xscale("log")
    marks = sorted({blocks * block_tokens for by_blocks in rates.values() for blocks in by_blocks})
    axes.set_xticks(marks)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: short(tokens)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    highest = max(rate for by_blocks in rates.values() for rate in by_blocks.values())
    axes.set_ylim(0, min(1.0, max(1.25 * highest, 0.01)))
    axes.set_xlabel("memory, tokens (logarithmic)")
    axes.set_ylabel("prompt tokens served from the cache")
    axes.grid(alpha=0.3)
    axes.legend(loc="best", framealpha=0.9)
    axes.set_title(fill(title, 100), fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
