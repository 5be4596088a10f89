"""Draws the panels of an experiment side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib

from workloads.experiments.panel import Line, Panel

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

# Colours that colour-blind readers can tell apart, lines and markers for print.
_STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#E69F00", "-", "v"),
)
_MOST_COLUMNS = 3
_MOST_MARKS = 6  # on a logarithmic axis, besides the first


def draw(title: str, panels: Sequence[Panel], path: Path) -> None:
    """Write the picture as PNG. Raises OSError."""
    columns = min(len(panels), _MOST_COLUMNS)
    rows = math.ceil(len(panels) / columns)
    width = 7.0 if columns == 1 else 4.6 * columns
    figure, grid = plt.subplots(
        rows, columns, figsize=(width, 0.5 + 3.9 * rows), layout="constrained", squeeze=False
    )
    places = [axes for row in grid for axes in row]
    for axes, panel in zip(places, panels, strict=False):
        _draw_panel(axes, panel)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_panel(axes: plt.Axes, panel: Panel) -> None:
    styles = iter(_STYLES * len(panel.lines))
    for line in panel.lines:
        _draw_line(axes, line, next(styles) if line.kind != "ceiling" else None)
    if panel.log_x:
        marks = sorted({x for line in panel.lines for x in line.xs})
        axes.set_xscale("log")
        axes.set_xticks(_apart(marks))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        axes.xaxis.set_minor_locator(NullLocator())
    if panel.percent_x:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if panel.percent_y:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(-0.02, 1.02)
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.set_title(panel.title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


def _draw_line(axes: plt.Axes, line: Line, style: tuple[str, str, str] | None) -> None:
    if style is None:
        axes.plot(line.xs, line.ys, color="#000000", linewidth=1.2, label=line.label)
        return
    colour, dash, marker = style
    shown = {"linestyle": "none" if line.kind == "points" else dash, "marker": marker}
    axes.plot(line.xs, line.ys, color=colour, markersize=5, label=line.label, **shown)


def _apart(marks: Sequence[float]) -> list[float]:
    """Those of the marks whose labels do not run into one another."""
    least = (marks[-1] / marks[0]) ** (1 / _MOST_MARKS)
    kept = [marks[0]]
    for mark in marks[1:]:
        if mark >= kept[-1] * least:
            kept.append(mark)
    return kept


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if value >= 1e4 else f"{value:,.0f}"
