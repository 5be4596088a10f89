"""The pictures of an agent benchmark: what each turn took of each target, and each rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from workloads.agents.compared import Result
from workloads.agents.measures import Turn
from workloads.agents.slo import Slo

# Colours that colour-blind readers can tell apart, and markers for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "os^Dv*"
_LEGEND_ROOM = -0.14


def draw(found: Sequence[Result], title: str, path: Path) -> None:
    """Write the plot as PNG: TTFT, hit rate and computed tokens over the turns of a session."""
    figure = Figure(figsize=(13.5, 5.0), layout="constrained")
    ttft, hits, computed = figure.subplots(1, 3)
    draw_ttft(ttft, found)
    draw_hits(hits, found)
    _lines(computed, found, _computed_a_call)
    _turns_panel(computed, "Prompt tokens computed", "tokens a call (mean)")
    _save(figure, title, path)


def draw_sweep(swept: dict[float, list[Result]], slo: Slo, title: str, path: Path) -> None:
    """Write the plot of a sweep as PNG: the share within the limits and TTFT over the rates."""
    figure = Figure(figsize=(11.0, 5.0), layout="constrained")
    share, ttft = figure.subplots(1, 2)
    draw_shares(share, swept, slo)
    draw_rates(ttft, swept, slo)
    _save(figure, title, path)


def _save(figure: Figure, title: str, path: Path) -> None:
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def draw_ttft(axes: Axes, found: Sequence[Result]) -> None:
    """Median and p99 of the time to first token over the turns of a session."""
    _lines(axes, found, lambda turn: _seconds(turn.ttft.p50_ms), "p50")
    _lines(axes, found, lambda turn: _seconds(turn.ttft.p99_ms), "p99", dashed=True)
    _turns_panel(axes, "Time to first token", "TTFT (s)")


def draw_hits(axes: Axes, found: Sequence[Result]) -> None:
    """The share of prompt tokens that came from the cache, over the turns of a session."""
    _lines(axes, found, lambda turn: turn.tokens.hit_rate)
    _turns_panel(axes, "Hit rate", "cached / prompt tokens")
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def draw_distribution(axes: Axes, found: Sequence[Result]) -> None:
    """The share of calls whose first token came within a time."""
    for index, result in enumerate(found):
        times = sorted(r.answer.ttft_s for run in result.runs for r in run.replay.records)
        if not times:
            continue
        shares = [(n + 1) / len(times) for n in range(len(times))]
        axes.step(
            [times[0], *times],
            [0.0, *shares],
            where="post",
            color=COLOURS[index % len(COLOURS)],
            label=result.title,
        )
    _panel(axes, "How soon first tokens came", "share of calls", "TTFT (s)")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def draw_shares(axes: Axes, swept: dict[float, list[Result]], slo: Slo) -> None:
    """The share of turns within the limits over the rates of arrival, and the share asked for."""
    _rates(axes, swept, lambda result: result.share(slo))
    if slo:
        axes.axhline(slo.share, color="0.5", linestyle=":", label=f"goal {slo.share:.0%}")
    _panel(axes, "Turns within the limits" if slo else "No limits given", "share of turns", _RATE)
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def draw_rates(axes: Axes, swept: dict[float, list[Result]], slo: Slo) -> None:
    """Median and p99 of the time to first token over the rates of arrival."""
    _rates(axes, swept, lambda r: _seconds(r.value(lambda run: run.summary.all.p50_ms)), "p50")
    _rates(
        axes, swept, lambda r: _seconds(r.value(lambda run: run.summary.all.p99_ms)), "p99", True
    )
    if slo.ttft_ms is not None:
        axes.axhline(slo.ttft_ms / 1000, color="0.5", linestyle=":", label="limit")
    _panel(axes, "Time to first token", "TTFT (s)", _RATE)


_RATE = "sessions a second"


def _computed_a_call(turn: Turn) -> float | None:
    computed = turn.tokens.computed
    return None if computed is None else computed / turn.ttft.calls


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _lines(
    axes: Axes,
    found: Sequence[Result],
    of: Callable[[Turn], float | None],
    what: str = "",
    dashed: bool = False,
) -> None:
    for index, result in enumerate(found):
        points = [(turn.turn, value) for turn in result.turns() if (value := of(turn)) is not None]
        _line(axes, points, index, f"{result.title} {what}".strip(), dashed)


def _rates(
    axes: Axes,
    swept: dict[float, list[Result]],
    of: Callable[[Result], float | None],
    what: str = "",
    dashed: bool = False,
) -> None:
    targets = dict.fromkeys(result.target for found in swept.values() for result in found)
    for index, name in enumerate(targets):
        points = [
            (rate, value)
            for rate, found in swept.items()
            for result in found
            if result.target == name and (value := of(result)) is not None
        ]
        _line(axes, points, index, f"{name} {what}".strip(), dashed)


def _line(
    axes: Axes, points: Sequence[tuple[float, float]], index: int, label: str, dashed: bool
) -> None:
    if not points:  # a server that does not tell
        return
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=COLOURS[index % len(COLOURS)],
        marker=None if dashed else _MARKERS[index % len(_MARKERS)],
        linestyle=":" if dashed else "-",
        label=label,
    )


def _turns_panel(axes: Axes, title: str, unit: str) -> None:
    _panel(axes, title, unit, "turn of the session")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _panel(axes: Axes, title: str, unit: str, across: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(across)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if axes.has_data():
        # Below the panel, where it can cover no point.
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, _LEGEND_ROOM)}
        axes.legend(fontsize=9, ncols=2, frameon=False, **place)
