"""Types of command-line options that say what is wrong with a value."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection

from server.config.readers import number


def reading(read: Callable[[str], object]) -> Callable[[str], object]:
    """A reader of a server's option, whose errors say what is wrong."""

    def read_it(text: str) -> object:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_it


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


def one_of(names: Collection[str]) -> Callable[[str], object]:
    """A reader of one of these names."""

    def read(text: str) -> object:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}")
        return text

    return read


def list_of(read: Callable[[str], object]) -> Callable[[str], tuple[object, ...]]:
    """A reader of such values with commas between them, one at least."""

    def read_all(text: str) -> tuple[object, ...]:
        found = tuple(read(part.strip()) for part in text.split(",") if part.strip())
        if not found:
            raise argparse.ArgumentTypeError(f"{text!r} names nothing; give values, as in A,B")
        return found

    return read_all
