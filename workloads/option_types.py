"""Types of command-line options that say what is wrong with a value."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from server.config.readers import number


def at_least(least: float, *, whole: bool = False) -> Callable[[str], object]:
    """A reader of numbers from ``least`` on; whole ones come as int."""
    reader = number(least, whole=whole)

    def read(text: str) -> object:
        try:
            return reader(text)
        except ValueError:
            kind = "a whole number" if whole else "a number"
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {kind} of at least {least:g}"
            ) from None

    return read
