"""What a finished agent benchmark prints and writes: tables, figures, pictures, the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workloads.agents import report
from workloads.agents.compared import results, results_by_rate
from workloads.agents.figures import figures, run_data, run_key
from workloads.agents.plan import Plan
from workloads.agents.run import Run
from workloads.agents.slo import Slo
from workloads.results import Figure, machine, table, write_results


def print_tables(runs: Sequence[Run], slo: Slo) -> None:
    """Print what was measured, side by side, and what has to be known of it."""
    swept = results_by_rate(runs)
    if swept:
        shown = [report.sweep_table(swept, slo)]
    else:
        found = results(runs)
        shown = [report.comparison_table(found, slo), report.turns_table(found)]
    for each in shown:
        print(f"\n{table(each.header, each.rows)}")
    print("\n" + "\n".join([*report.rate_lines(swept, slo), *report.remarks(runs)]), flush=True)


def write_all(
    name: str,
    folder: Path,
    plan: Plan,
    runs: Sequence[Run],
    problems: Sequence[str],
    slo: Slo,
    asked: Mapping[str, object],
    more: Mapping[str, Figure] | None = None,
) -> None:
    """Write NAME.json, NAME.png and NAME.html into a folder, and say so.

    ``asked``: the options, for the reader. ``more``: figures beside the usual ones, put first.
    """
    # Imported here: it takes a second and only a finished run needs it.
    from workloads.agents.plot import draw, draw_sweep

    shown = dict(more or {}) | figures(runs, slo)
    data = {
        "workload": plan.title,
        "notes": plan.notes,
        "problems": list(problems),
        "resumed": any(run.resumed_after for run in runs),
        "limits": {"ttft_ms": slo.ttft_ms, "itl_ms": slo.itl_ms, "share": slo.share},
        "remarks": report.remarks(runs),
        "options": dict(asked),
        "runs": {run_key(run): run_data(run) for run in runs},
    }
    path = write_results(folder, name, shown, data)
    swept = results_by_rate(runs)
    models = dict.fromkeys(str(run.server.get("model")) for run in runs)
    title = f"{plan.title}, {', '.join(models)}"
    picture, page = folder / f"{name}.png", folder / f"{name}.html"
    if swept:
        draw_sweep(swept, slo, title, picture)
    else:
        draw(results(runs), title, picture)
    _write_page(page, title, plan, runs, problems, slo, asked)
    print(f"written: {path}, {picture}, {page}", flush=True)


def _write_page(
    page: Path,
    title: str,
    plan: Plan,
    runs: Sequence[Run],
    problems: Sequence[str],
    slo: Slo,
    asked: Mapping[str, object],
) -> None:
    from workloads.agents import html_report as html

    swept = results_by_rate(runs)
    sections = []
    if swept:
        sections.append(
            html.section(
                "By rate of arrivals",
                html.sweep_pictures(swept, slo),
                html.table_html(report.sweep_table(swept, slo)),
            )
        )
    for rate, found in swept.items() or [(None, results(runs))]:
        at = "" if rate is None else f", {rate:g} sessions a second"
        parts = [
            html.table_html(report.comparison_table(found, slo)),
            html.turn_pictures(found),
            html.table_html(report.turns_table(found)),
        ]
        heading = f"Side by side and turn by turn{at}"
        sections.append(html.section(heading, *parts, folded=bool(swept)))
    lines = [
        *plan.notes,
        *report.rate_lines(swept, slo),
        *report.remarks(runs),
        *(f"FAILED: {problem}" for problem in problems),
    ]
    html.write_html(page, title, lines, sections, asked, machine())
