"""What checks of the GPU found: errors against tolerances, and what a whole run comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import torch

from workloads.results import Figure, number, table

WRONG, NO_GPU = 1, 2
"""Exit statuses: something is wrong or could not be checked; there is nothing to check on."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Each element may be off by ``absolute`` and by ``relative`` times what was expected."""

    absolute: float = 0.0
    relative: float = 0.0

    def __str__(self) -> str:
        if not self.absolute and not self.relative:
            return "every bit"
        relative = f" + {self.relative:.2g} of it" if self.relative else ""
        return f"{self.absolute:.2g}{relative}"


EXACT = Tolerance()


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison. ``worst``: the largest error as a share of what is tolerated; None: no share
    can be told, and ``note`` says what is wrong."""

    part: str
    name: str
    tolerance: str
    worst: float | None
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is off by more than is tolerated."""
        return self.worst is not None and self.worst <= 1


@dataclass(frozen=True, slots=True)
class PartResult:
    """What one part of the run found."""

    checks: Sequence[Check] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)


def compare(
    part: str, name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance
) -> Check:
    """Compare two tensors element by element, on the CPU, in float64.

    A NaN or an infinity is wrong, whatever was expected.
    """
    if found.shape != expected.shape:
        note = f"shape {tuple(found.shape)}, not {tuple(expected.shape)}"
        return Check(part, name, str(tolerance), None, note)
    found, expected = found.cpu().double(), expected.cpu().double()
    broken = int((~found.isfinite()).sum())
    if broken:
        note = f"{broken:,} of {found.numel():,} values are no finite numbers"
        return Check(part, name, str(tolerance), None, note)
    error = (found - expected).abs()
    if tolerance == EXACT:
        other = int((error != 0).sum())
        note = f"{other:,} of {found.numel():,} values differ" if other else ""
        return Check(part, name, str(tolerance), None if other else 0.0, note)
    allowed = tolerance.absolute + tolerance.relative * expected.abs()
    worst = float((error / allowed).max())
    beyond = int((error > allowed).sum())
    note = f"{beyond:,} of {found.numel():,} values, by up to {float(error.max()):.3g}"
    return Check(part, name, str(tolerance), worst, note if beyond else "")


def exit_status(results: Mapping[str, PartResult], problems: Mapping[str, str]) -> int:
    """0 where all that was asked for was checked and is right. ``problems``: parts that could not
    be run, and why."""
    wrong = any(not check.ok for result in results.values() for check in result.checks)
    return WRONG if wrong or problems else 0


def merged_figures(
    results: Mapping[str, PartResult], problems: Mapping[str, str]
) -> dict[str, Figure]:
    """All parts' figures, behind the counts that must be 0."""
    checks = [check for result in results.values() for check in result.checks]
    counts = {
        "wrong_results": Figure(sum(not c.ok for c in checks), "checks", "lower", 0),
        "parts_not_run": Figure(len(problems), "parts", "lower", 0),
        "checks": Figure(len(checks), "checks", "higher"),
    }
    return counts | {k: f for result in results.values() for k, f in result.figures.items()}


def data_of(results: Mapping[str, PartResult], problems: Mapping[str, str]) -> dict[str, object]:
    """All parts' checks and data, for JSON."""
    return {
        "problems": dict(problems),
        "parts": {
            name: {
                "checks": [asdict(check) | {"ok": check.ok} for check in result.checks],
                **result.data,
            }
            for name, result in results.items()
        },
    }


def checks_table(checks: Sequence[Check]) -> str:
    """One row a check: the error as a share of the tolerance, the tolerance, and what is wrong."""
    rows = [
        (
            f"{check.part}: {check.name}",
            number(check.worst, 2),
            check.tolerance,
            "ok" if check.ok else f"WRONG {check.note}".strip(),
        )
        for check in checks
    ]
    return table(("check", "error / tolerance", "tolerance", "result"), rows)
