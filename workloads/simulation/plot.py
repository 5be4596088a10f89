"""The picture of a simulation: each order's times to first token and hit rate."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from textwrap import fill

import matplotlib

from workloads.results import number
from workloads.simulation.grid import Combination
from workloads.simulation.report import Row
from workloads.tree.plot import spread_out

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

# Colours that colour-blind readers can tell apart, lines and markers for print.
_STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#000000", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#E69F00", "-", "P"),
    ("#56B4E9", "--", "X"),
    ("#999999", "-.", "*"),
)
# Shares of the requests at which the first line has a marker, and how much further the next has.
_MARKED, _MARKED_FURTHER = (0.08, 0.28, 0.48, 0.68, 0.88), 0.035
_TITLE_WIDTH = 150  # letters
_LEAST_GAP = 0.06  # between two labels, in heights of the panel


def draw(rows: Mapping[str, Row], best_order: Row | None, title: str, path: Path) -> None:
    """Write the plot as PNG. ``rows``: by order. ``best_order``: a row whose hit rate is drawn as
    what the best order gives."""
    figure, (times, hits) = plt.subplots(
        1, 2, figsize=(12.0, 5.0), layout="constrained", width_ratios=(3, 2)
    )
    _draw_times(times, {order: row for order, row in rows.items() if row.ttft_s})
    _draw_hits(hits, rows, best_order)
    figure.suptitle(fill(title, _TITLE_WIDTH), fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_sizes(
    rows: Mapping[str, Row],
    grid: Mapping[str, Combination],
    block_tokens: int,
    title: str,
    path: Path,
) -> None:
    """Write the plot of several sizes of the memory as PNG: hit rate, and mean time to the end of
    a session, a line for each of what else differs."""
    lines: dict[str, list[tuple[int, Row]]] = {}
    for name, each in grid.items():
        line = name.replace(f", {each.blocks:,} blocks", "")
        lines.setdefault(line, []).append((each.blocks * block_tokens, rows[name]))
    figure, panels = plt.subplots(1, 2, figsize=(12.0, 5.0), layout="constrained")
    for axes, key in zip(panels, ("hit_rate", "session_mean_s"), strict=True):
        for (line, points), (colour, stroke, marker) in zip(
            lines.items(), cycle(_STYLES), strict=False
        ):
            known = sorted(
                (tokens, value) for tokens, row in points if (value := row.values[key]) is not None
            )
            axes.plot(
                [tokens for tokens, _ in known],
                [value for _, value in known],
                color=colour,
                linestyle=stroke,
                marker=marker,
                label=line,
            )
        axes.set_xscale("log")
        axes.set_xticks(sorted({tokens for points in lines.values() for tokens, _ in points}))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: short(tokens)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("memory, tokens (logarithmic)")
        axes.grid(alpha=0.3)
    panels[0].set_title("Hit rate", fontsize=11)
    panels[0].set_ylabel("cached / prompt tokens")
    panels[0].set_ylim(0.0, 1.0)
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    panels[1].set_title(
        "Mean time of a session, from its first request to its last answer", fontsize=11
    )
    panels[1].set_ylabel("simulated seconds")
    panels[1].set_ylim(bottom=0.0)
    panels[0].legend(frameon=False, fontsize=9)
    figure.suptitle(fill(title, _TITLE_WIDTH), fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def short(tokens: float) -> str:
    """A number of tokens for an axis."""
    return f"{tokens / 1e6:.3g}M" if tokens >= 1e6 else f"{tokens / 1e3:.3g}k"


def _draw_times(axes: Axes, rows: Mapping[str, Row]) -> None:
    """TTFT over the share of requests that had their first token by then."""
    for index, (order, (colour, line, marker)) in enumerate(
        zip(rows, cycle(_STYLES), strict=False)
    ):
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
        rows.items(), places, ends, cycle(_STYLES), strict=False
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
    for place, (rate, (colour, _, marker)) in enumerate(zip(rates, cycle(_STYLES), strict=False)):
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
