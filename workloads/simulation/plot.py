"""The picture of a simulation: each order's times to first token and hit rate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib

from workloads.results import number
from workloads.simulation.report import Row
from workloads.tree.plot import spread_out

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

# Colours that colour-blind readers can tell apart, lines and markers for print.
_STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#000000", (0, (5, 1, 1, 1, 1, 1)), "v"),
)
# Shares of the requests at which the first line has a marker, and how much further the next has.
_MARKED, _MARKED_FURTHER = (0.08, 0.28, 0.48, 0.68, 0.88), 0.035
_LEAST_GAP = 0.06  # between two labels, in heights of the panel


def draw(rows: Mapping[str, Row], best_order: Row | None, title: str, path: Path) -> None:
    """Write the plot as PNG. ``rows``: by order. ``best_order``: a row whose hit rate is drawn as
    what the best order gives."""
    figure, (times, hits) = plt.subplots(
        1, 2, figsize=(12.0, 5.0), layout="constrained", width_ratios=(3, 2)
    )
    _draw_times(times, {order: row for order, row in rows.items() if row.ttft_s})
    _draw_hits(hits, rows, best_order)
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_times(axes: Axes, rows: Mapping[str, Row]) -> None:
    """TTFT over the share of requests that had their first token by then."""
    for index, (order, (colour, line, marker)) in enumerate(zip(rows, _STYLES, strict=False)):
        row = rows[order]
        count = len(row.ttft_s)
        shares = [(place + 1) / count for place in range(count)]
        places = (int((share + index * _MARKED_FURTHER) * count) for share in _MARKED)
        marked = sorted({min(count - 1, place) for place in places})
        axes.plot(
            shares,
            row.ttft_s,
            color=colour,
            linestyle=line,
            linewidth=1.5 if index else 3.0,  # so that it can be seen below another one
            marker=marker,
            markevery=marked,
            label=order,
        )
    axes.set_title("Time to first token", fontsize=11)
    axes.set_xlabel("share of the requests with at most this time")
    axes.set_ylabel("TTFT (simulated seconds)")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlim(0.0, 1.0)
    axes.grid(alpha=0.3)
    _label_ends(axes, rows)


def _label_ends(axes: Axes, rows: Mapping[str, Row]) -> None:
    """Each line's order, mean and p99 to the right of its end."""
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = [row.ttft_s[-1] for row in rows.values()]
    heights = [float(to_axes.transform((1.0, end))[1]) for end in ends]
    places = spread_out(heights, _LEAST_GAP)
    for (order, row), place, end, (colour, _, _) in zip(
        rows.items(), places, ends, _STYLES, strict=False
    ):
        mean, p99 = row.values["ttft_mean_s"], row.values["ttft_p99_s"]
        axes.annotate(
            f"{order}: mean {number(mean, 3)}, p99 {number(p99, 3)}",
            xy=(1.0, end),
            xytext=(1.03, place),
            textcoords="axes fraction",
            color=colour,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "relpos": (0.0, 0.5)},
        )


def _draw_hits(axes: Axes, rows: Mapping[str, Row], best_order: Row | None) -> None:
    rates = [row.values["hit_rate"] or 0.0 for row in rows.values()]
    for place, (rate, (colour, _, marker)) in enumerate(zip(rates, _STYLES, strict=False)):
        axes.hlines(place, 0.0, rate, color=colour, linewidth=1.5)
        axes.plot([rate], [place], color=colour, marker=marker, markersize=8)
        axes.annotate(
            f"{rate:.1%}",
            (rate, place),
            xytext=(-4 if rate > 0.2 else 4, 8),
            textcoords="offset points",
            ha="right" if rate > 0.2 else "left",
        )
    if best_order is not None and best_order.values["hit_rate"] is not None:
        best = best_order.values["hit_rate"]
        axes.axvline(best, color="#7F7F7F", linewidth=1.0, linestyle=(0, (2, 2)))
        axes.annotate(
            f"dfs, all at once, unbounded: {best:.1%}",
            (best, len(rows) - 0.45),
            xytext=(-4 if best > 0.5 else 4, 0),
            textcoords="offset points",
            ha="right" if best > 0.5 else "left",
            va="center",
            fontsize=9,
            color="#555555",
        )
    axes.set_title("Hit rate", fontsize=11)
    axes.set_xlabel("cached / prompt tokens")
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.2, -0.6)
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(alpha=0.3, axis="x")
