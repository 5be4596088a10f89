"""canitoolcall: scenarios with tools, whole and streamed, and what it found."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Of its rows: the one that compares a scenario's streamed answer with the whole one.
_COMPARISON = "stream_equals_nonstream"
_REQUEST_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Findings:
    """``statuses``: its rows by what came of them: pass, fail, error (no answer) and skip.
    ``differences``: scenarios whose stream was another answer than the whole. ``problems``: its
    words on each row that did not pass, and its warnings."""

    statuses: dict[str, int]
    differences: int
    problems: tuple[str, ...]


def probe_command(program: Path, url: str, model: str, output: Path) -> list[str]:
    """canitoolcall's command line; it writes its report to ``output``."""
    words = ["probe", "--base-url", f"{url}/v1", "--model", model, "--json", str(output)]
    return [str(program), *words, "--timeout", str(_REQUEST_LIMIT_S), "--concurrency", "2"]


def read_probe(output: Path) -> Findings:
    """What it has written. Raises ValueError where that is no report."""
    try:
        rows: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))["outcomes"]
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"canitoolcall wrote no report: {error}") from error
    failed = [row for row in rows if row["status"] in ("fail", "error")]
    return Findings(
        statuses=dict(Counter(row["status"] for row in rows)),
        differences=sum(row["check"] == _COMPARISON for row in failed),
        problems=tuple(
            f"{row['scenario_id']} ({_kind(row)}): {row['status']}: {text}"
            for row in rows
            for text in (*([row["detail"]] if row in failed else ()), *row["warnings"])
        ),
    )


def _kind(row: dict[str, Any]) -> str:
    if row["check"] == _COMPARISON:
        return "stream = whole"
    return "streamed" if row["stream"] else "whole"
