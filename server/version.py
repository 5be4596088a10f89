"""The version of the server."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

_NAME = "radix-engine"


def version() -> str:
    """As pyproject.toml says, where the server runs from a checkout; else as it was installed."""
    file = Path(__file__).resolve().parent.parent / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        if project["name"] == _NAME:
            return str(project["version"])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        pass
    try:
        return metadata.version(_NAME)
    except metadata.PackageNotFoundError:
        return "unknown"
