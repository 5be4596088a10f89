"""The form in which every benchmark writes its figures, and prints them beside their goals."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, the goal set for it (None: none) and which way is better."""

    value: float
    unit: str
    better: Better
    goal: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.better == "lower" else self.value >= self.goal


def results_form(name: str, figures: Mapping[str, Figure], data: object) -> dict[str, object]:
    """A benchmark's result as it is written, with this moment, commit and machine."""
    return {
        "name": name,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "figures": {key: asdict(figure) for key, figure in figures.items()},
        "data": data,
    }


def write_results(folder: Path, name: str, figures: Mapping[str, Figure], data: object) -> Path:
    """Write ``folder``/``name``.json and return its path.

    The file appears whole or not at all: it is written beside its place and renamed. Raises
    ValueError for a figure that is not a finite number, OSError where it cannot be written.
    """
    text = json.dumps(results_form(name, figures, data), indent=2, allow_nan=False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=folder, prefix=f".{name}-", suffix=".json", delete=False
    ) as file:
        try:
            file.write(text + "\n")
            file.close()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    return path


def folder_problem(folder: Path) -> str | None:
    """Why results cannot be written to a folder, or to one that would be made; or None. Makes
    nothing."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{there} is no folder; name another folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} may not be written to; name another folder"
    return None


def commit() -> str | None:
    """The commit of the checkout this module lies in; None outside one or without git."""
    root = Path(__file__).resolve().parents[1]
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--show-toplevel", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    top, head = answer.stdout.split("\n")[:2]
    # An installed copy may lie inside some other project's checkout.
    return head if Path(top).resolve() == root else None


def machine() -> dict[str, object]:
    """What a figure was measured on; the torch version is read without importing torch."""
    try:
        torch: str | None = version("torch")
    except PackageNotFoundError:
        torch = None
    return {
        "cpu": _first_value("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch,
    }


def _first_value(path: str, key: str) -> str | None:
    try:
        for line in Path(path).read_text(errors="replace").splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return None


def number(value: float | None, digits: int = 4) -> str:
    """A value for people: about ``digits`` significant digits, thousands separated, - for None."""
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned plain text: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def goal_text(figure: Figure | None) -> str:
    """A figure's goal and whether it is met, for a table's cell; empty without a goal."""
    if figure is None or figure.goal is None:
        return ""
    sign = "<=" if figure.better == "lower" else ">="
    return f"{sign} {number(figure.goal)} {'met' if figure.met else 'MISSED'}"


def figures_table(figures: Mapping[str, Figure]) -> str:
    """All figures with unit and goal, one a row."""
    return table(
        ("figure", "value", "unit", "goal"),
        [(key, number(f.value), f.unit, goal_text(f)) for key, f in figures.items()],
    )
