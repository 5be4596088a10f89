"""The report of an agent benchmark as one HTML file that needs nothing else: tables, pictures as
inline SVG, the options and the machine. Its colours follow the reader's, dark or light."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workloads.agents import plot
from workloads.agents.compared import Result
from workloads.agents.report import Table
from workloads.agents.slo import Slo

# Stands in the SVG for whatever colour the page writes in.
_INK = "#010203"
_INKED = (
    "text.color",
    "axes.edgecolor",
    "axes.labelcolor",
    "xtick.color",
    "ytick.color",
)
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1c1e; --paper: #fff; --soft: #5c6369; --line: #d9dde1;
  --c0: #0072b2; --c1: #d55e00; --c2: #00805f; --c3: #b0508a; --c4: #a87400; --c5: #2f86bd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --paper: #16181a; --soft: #a0a7ad;
  --line: #3a3f44; --c0: #5ab4f0; --c1: #ff9a4d; --c2: #3ed6ac; --c3: #e8a3cb; --c4: #f0bf4d;
  --c5: #8fd0f5; } }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p, li { max-width: 46rem; overflow-wrap: anywhere; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 7rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr));
  gap: 1rem; margin: 1.5rem 0; }
figure { margin: 0; } svg { width: 100%; height: auto; display: block; }
details { margin-top: 1rem; } summary { cursor: pointer; font-weight: 600; }
@media (max-width: 40rem) { table { font-size: .8rem; } th, td { padding: .2rem .4rem; } }
"""


def write_html(
    path: Path,
    title: str,
    lines: Sequence[str],
    sections: Sequence[str],
    options: Mapping[str, object],
    machine: Mapping[str, object],
) -> None:
    """Write a report: its title, what a reader has to know, its sections (HTML), and at the end
    what was asked and where it ran."""
    body = [
        f"<h1>{escape(title)}</h1>",
        "<ul>",
        *(f"<li>{escape(line)}</li>" for line in lines),
        "</ul>",
        *sections,
        "<h2>Options</h2>",
        table_html(_pairs(options)),
        "<h2>Machine</h2>",
        table_html(_pairs(machine)),
    ]
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + "\n".join(body) + "\n</body>\n</html>\n", encoding="utf-8")


def section(title: str, *parts: str, folded: bool = False) -> str:
    """A part of the report under a heading; ``folded`` ones are opened by a click."""
    inner = "\n".join(parts)
    if folded:
        return f"<details><summary>{escape(title)}</summary>\n{inner}\n</details>"
    return f"<h2>{escape(title)}</h2>\n{inner}"


def table_html(table: Table) -> str:
    """A table that scrolls by itself where the page is narrow."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        '<div class="scroll"><table>\n'
        + (f"<thead><tr>{head}</tr></thead>\n" if any(table.header) else "")
        + f"<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _pairs(values: Mapping[str, object]) -> Table:
    return Table(("", ""), tuple((name, _text(value)) for name, value in values.items()))


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return "-" if value is None else str(value)


def turn_pictures(found: Sequence[Result]) -> str:
    """TTFT and hit rate over the turns, and the distribution of TTFT, as inline SVG."""
    return _pictures(
        {
            "Time to first token by turn": lambda axes: plot.draw_ttft(axes, found),
            "Hit rate by turn": lambda axes: plot.draw_hits(axes, found),
            "Distribution of the time to first token": (
                lambda axes: plot.draw_distribution(axes, found)
            ),
        }
    )


def sweep_pictures(swept: dict[float, list[Result]], slo: Slo) -> str:
    """The share within the limits and TTFT over the rates, as inline SVG."""
    return _pictures(
        {
            "Share of turns within the limits by rate": (
                lambda axes: plot.draw_shares(axes, swept, slo)
            ),
            "Time to first token by rate": lambda axes: plot.draw_rates(axes, swept, slo),
        }
    )


def _pictures(drawers: Mapping[str, Callable[[Axes], None]]) -> str:
    figures = (f"<figure>{_svg(draw, label)}</figure>" for label, draw in drawers.items())
    return '<div class="pictures">\n' + "\n".join(figures) + "\n</div>"


def _svg(draw: Callable[[Axes], None], label: str) -> str:
    """One picture as an SVG element that takes its colours from the page."""
    settings = dict.fromkeys(_INKED, _INK) | {"svg.fonttype": "none"}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(4.6, 4.0), layout="constrained")
        draw(figure.subplots())
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inlined(out.getvalue(), label)


def _inlined(svg: str, label: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    # Names that nothing refers to, and that several pictures would have.
    svg = re.sub(r' id="[A-Za-z.]+_\d+"', "", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    svg = svg.replace(_INK, "currentColor")
    for index, colour in enumerate(plot.COLOURS):
        svg = svg.replace(colour.lower(), f"var(--c{index})")
    return svg.strip()
