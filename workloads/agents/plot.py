"""The picture of an agent benchmark: what each turn cost, with the cache and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

from workloads.agents.measures import Turn
from workloads.agents.run import Run

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

# Two colours that colour-blind readers can tell apart, and two markers for print.
_STYLE = {"on": ("#0072B2", "o"), "off": ("#D55E00", "s")}


def draw(runs: Sequence[Run], title: str, path: Path) -> None:
    """Write the plot as PNG: TTFT, hit rate and computed tokens over the turns of a session."""
    figure, panels = plt.subplots(1, 3, figsize=(13.5, 5.0), layout="constrained")
    ttft, hits, computed = panels
    for run in runs:
        _line(ttft, run, lambda turn: _seconds(turn.ttft.p50_ms), "p50")
        _line(ttft, run, lambda turn: _seconds(turn.ttft.p99_ms), "p99", dashed=True)
        _line(hits, run, lambda turn: turn.tokens.hit_rate)
        _line(computed, run, lambda turn: turn.tokens.computed / turn.ttft.calls)
    _panel(ttft, "Time to first token", "TTFT (s)")
    _panel(hits, "Hit rate", "cached / prompt tokens")
    _panel(computed, "Prompt tokens computed", "tokens a call (mean)")
    hits.set_ylim(-0.03, 1.03)
    hits.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _line(
    axes: Axes, run: Run, of: Callable[[Turn], float | None], what: str = "", dashed: bool = False
) -> None:
    colour, marker = _STYLE[run.label]
    points = [(turn.turn, value) for turn in run.summary.turns if (value := of(turn)) is not None]
    axes.plot(
        [turn for turn, _ in points],
        [value for _, value in points],
        color=colour,
        marker=None if dashed else marker,
        linestyle=":" if dashed else "-",
        label=f"cache {run.label} {what}".strip(),
    )


def _panel(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("turn of the session")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    # Below the panel, where it can cover no point.
    axes.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False)
