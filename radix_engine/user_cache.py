"""The folder where what was fetched, converted or compiled is kept for the next start."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """``radix-engine`` in XDG_CACHE_HOME, or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "radix-engine"
