"""The picture of bench-cpu: how many times better ours is than each peer, and the goals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from workloads.cpu.report import Comparison

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

# Colours that colour-blind readers can tell apart, and hatches for print.
_STYLE = {
    "openvino": ("#0072B2", "", "OpenVINO GenAI, in process"),
    "vllm": ("#D55E00", "//", "vLLM, over HTTP"),
    "llama.cpp": ("#009E73", "..", "llama.cpp, in process, the same 4-bit weights"),
}
_WIDTH = 0.28
_CAP = 5.0  # times better; higher bars are cut there, and their labels say how high they are
_ROW = 13  # groups in one row of the picture


def draw(comparisons: Sequence[Comparison], title: str, path: Path) -> None:
    """Write the plot as PNG: a group for each measure, a bar for each peer, a mark at each goal.

    Everything is drawn as how many times better ours is: above 1 ours is ahead.
    """
    peers = [peer for peer in _STYLE if any(each.peer == peer for each in comparisons)]
    measures = list(dict.fromkeys(_group(each) for each in comparisons))
    rows = [measures[i : i + _ROW] for i in range(0, len(measures), _ROW)]
    figure, panels = plt.subplots(
        len(rows), 1, figsize=(13.5, 1.0 + 3.9 * len(rows)), layout="constrained", squeeze=False
    )
    for panel, row in zip(panels[:, 0], rows, strict=True):
        _panel(panel, row, peers, comparisons)
    handles = [
        plt.Rectangle((0, 0), 1, 1, facecolor=_STYLE[peer][0], hatch=_STYLE[peer][1])
        for peer in peers
    ]
    labels = [_STYLE[peer][2] for peer in peers]
    handles.append(plt.Line2D([], [], color="black", linewidth=2.5))
    figure.legend(handles, [*labels, "goal"], loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _panel(
    axes: Axes, measures: Sequence[str], peers: Sequence[str], comparisons: Sequence[Comparison]
) -> None:
    top = 1.0
    for place, measure in enumerate(measures):
        bars = [each for each in comparisons if _group(each) == measure]
        bars.sort(key=lambda each: peers.index(each.peer))
        left = place - _WIDTH * (len(bars) - 1) / 2
        for index, each in enumerate(bars):
            x, height = left + index * _WIDTH, each.times_better
            colour, hatch, _ = _STYLE[each.peer]
            shown = min(height, _CAP)
            axes.bar(x, shown, _WIDTH * 0.92, color=colour, hatch=hatch, edgecolor="white")
            goal = each.goal_times_better
            if goal is not None:
                half = _WIDTH * 0.46
                axes.plot([x - half, x + half], [goal, goal], color="black", linewidth=2.5)
            # Above the bar; above the goal's mark, too, where that is in the way.
            above = goal if goal is not None and 0 <= goal - shown < 0.35 else shown
            axes.annotate(
                f"{height:.1f}" if height <= _CAP else f"{height:,.0f} \u2191",
                (x, above),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )
            top = max(top, above, goal or 0)
    axes.axhline(1, color="0.35", linewidth=1, linestyle="--", zorder=0)
    axes.set_ylim(0, top * 1.12)
    axes.set_xlim(-0.7, max(len(measures), 4) - 0.3)
    axes.set_xticks(range(len(measures)), [_wrapped(measure) for measure in measures], fontsize=8)
    axes.set_ylabel("times better than the peer")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _group(each: Comparison) -> str:
    """What peers are shown side by side for: a measure by whichever door."""
    return each.measure.replace(" over HTTP", "").replace(" 4-bit", "")


def _wrapped(measure: str) -> str:
    """A measure's name in short lines."""
    words = measure.split(" ")
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > 9:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
