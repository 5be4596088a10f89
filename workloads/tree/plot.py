"""The picture of the tree benchmark: what each operation costs in trees of more and more leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

from workloads.results import number

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, NullLocator

# Colours that colour-blind readers can tell apart, and markers for print.
_STYLES = (
    ("#0072B2", "o"),
    ("#56B4E9", "s"),
    ("#009E73", "^"),
    ("#D55E00", "D"),
    ("#CC79A7", "v"),
    ("#E69F00", "P"),
    ("#000000", "X"),
    ("#7F7F7F", "*"),
    ("#882255", "h"),
)
_LEAST_GAP = 0.042  # between two labels, in heights of the panel


def draw(
    leaves: Sequence[int],
    medians: Mapping[str, Sequence[float]],
    title: str,
    path: Path,
    sizes: str = "leaves in the tree",
) -> None:
    """Write the plot as PNG: microseconds over leaves, both on log scales, a line an operation.

    ``medians``: the label of an operation and its microseconds for each of ``leaves``. ``sizes``:
    what there are so many of, where it is not leaves.
    """
    figure, axes = plt.subplots(figsize=(9.0, 6.0), layout="constrained")
    for (label, values), (colour, marker) in zip(
        medians.items(), _cycle(len(medians)), strict=True
    ):
        axes.plot(leaves, values, color=colour, marker=marker, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(list(leaves), [f"{count:,}" for count in leaves])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel(sizes)
    axes.set_ylabel("median time (microseconds)")
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.3)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.3, high * 1.3)
    _label_lines(axes, leaves[-1], medians)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _cycle(count: int) -> list[tuple[str, str]]:
    return [_STYLES[index % len(_STYLES)] for index in range(count)]


def _label_lines(axes: plt.Axes, end: int, medians: Mapping[str, Sequence[float]]) -> None:
    """Each line's name and last value to the right of its end."""
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = [float(to_axes.transform((end, values[-1]))[1]) for values in medians.values()]
    styles = _cycle(len(medians))
    for (label, values), height, (colour, _) in zip(
        medians.items(), spread_out(heights, _LEAST_GAP), styles, strict=True
    ):
        axes.annotate(
            f"{label}: {number(values[-1], 3)}",
            xy=(end, values[-1]),
            xytext=(1.03, height),
            textcoords="axes fraction",
            color=colour,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "relpos": (0.0, 0.5)},
        )


def spread_out(places: Sequence[float], gap: float) -> list[float]:
    """Places at least ``gap`` apart, in the order of the given ones and near to them.

    Those that are too close together move away from their middle.
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        while len(groups) > 1 and _highest(groups[-2], places, gap) + gap > _lowest(
            groups[-1], places, gap
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    result = list(places)
    for group in groups:
        low = _lowest(group, places, gap)
        for step, index in enumerate(group):
            result[index] = low + gap * step
    return result


def _lowest(group: Sequence[int], places: Sequence[float], gap: float) -> float:
    return sum(places[index] for index in group) / len(group) - gap * (len(group) - 1) / 2


def _highest(group: Sequence[int], places: Sequence[float], gap: float) -> float:
    return _lowest(group, places, gap) + gap * (len(group) - 1)
