"""Types of command-line options that say what is wrong with a value."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def at_least(least: float, *, whole: bool = False) -> Callable[[str], float]:
    """A reader of numbers from ``least`` on; whole ones come as int."""

    def read(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = math.nan
        if not (value >= least and math.isfinite(value)):
            kind = "a whole number" if whole else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {kind} of at least {least:g}")
        return value

    return read
