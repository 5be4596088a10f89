"""Small trace files for the tests."""

from __future__ import annotations

import json
from pathlib import Path


def lines_file(folder: Path, *rows: object, name: str = "t.jsonl") -> Path:
    """A file with one JSON value a line."""
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def array_file(folder: Path, *rows: object, name: str = "t.json") -> Path:
    """A file with one JSON array, over several lines."""
    path = folder / name
    path.write_text("\n" + json.dumps(rows, indent=1), encoding="utf-8")
    return path
