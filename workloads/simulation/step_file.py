"""Files of measured steps: one JSON object a line, with what a step computed and how long it took.

``{"computed": 256, "pairs": 32896, "sequences": 1, "seconds": 0.61}``
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


class StepFileError(Exception):
    """A file of steps that cannot be read; the message names the file, the line and the field."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step as it was run: tokens computed, pairs of such a token and one that it attends to
    (itself included), sequences that took part, and wall seconds."""

    computed: int
    pairs: int
    sequences: int
    seconds: float


def read_steps(path: Path) -> list[MeasuredStep]:
    """All steps of a file. Raises StepFileError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StepFileError(f"{path}: cannot be read: {error}") from error
    return [
        _step(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def write_steps(path: Path, steps: Iterable[MeasuredStep]) -> None:
    """Write the steps, one a line. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(step)) + "\n" for step in steps), encoding="utf-8")


def _step(line: str, where: str) -> MeasuredStep:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise StepFileError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise StepFileError(f"{where}: must be a JSON object")
    for field in fields(MeasuredStep):
        value: Any = row.get(field.name)
        whole = field.name != "seconds"
        if type(value) not in ((int,) if whole else (int, float)) or not 0 < value < math.inf:
            kind = "a whole number above 0" if whole else "a number above 0, in seconds"
            raise StepFileError(f"{where}: {field.name} must be {kind}, is {value!r}")
    return MeasuredStep(row["computed"], row["pairs"], row["sequences"], float(row["seconds"]))
