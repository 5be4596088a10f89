"""From the text of a setting to its value.

A reader raises ValueError with what a value must be and what it is; whoever calls it knows where
the text came from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from radix_engine.memory.sizing import format_size, parse_size

Reader = Callable[[str], object]

_YES = ("on", "true", "yes", "1")
_NO = ("off", "false", "no", "0")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    known: tuple[str, ...]

    def __call__(self, text: str) -> str:
        if text not in self.known:
            raise ValueError(f"must be one of {', '.join(self.known)}, not {text!r}")
        return text


def number(least: float, most: float = math.inf, *, whole: bool = False) -> Reader:
    """Numbers from ``least`` to ``most``; ``whole`` ones come as int."""
    kind = "a whole number" if whole else "a number"
    up_to = "" if most == math.inf else f" to {most:g}" if most < 1e6 else f" to {most:,.0f}"

    def read(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = math.nan
        if not (least <= value <= most and math.isfinite(value)):
            raise ValueError(f"must be {kind} from {least:g}{up_to}, not {text!r}")
        return value

    return read


def number_of(known: Iterable[int]) -> Reader:
    """One of a few whole numbers."""
    texts = {str(each): each for each in known}

    def read(text: str) -> int:
        if text not in texts:
            raise ValueError(f"must be one of {', '.join(texts)}, not {text!r}")
        return texts[text]

    return read


def unlimited_or(read: Reader) -> Reader:
    """What ``read`` takes; None for ``unlimited`` and for 0."""

    def read_limit(text: str) -> object:
        if text in ("unlimited", "0"):
            return None
        try:
            return read(text)
        except ValueError as error:
            raise ValueError(f"{error}; write 0 or unlimited for no limit") from None

    return read_limit


def auto_off_or(read: Reader) -> Reader:
    """What ``read`` takes, or auto; None for off."""

    def read_it(text: str) -> object:
        if text in ("auto", "off"):
            return None if text == "off" else text
        try:
            return read(text)
        except ValueError as error:
            raise ValueError(f"{error}; or write auto or off") from None

    return read_it


def switch(text: str) -> bool:
    """on or off."""
    if text.lower() not in _YES + _NO:
        raise ValueError(f"must be on or off, not {text!r}")
    return text.lower() in _YES


def some_text(text: str) -> str:
    """Any text but an empty one."""
    if not text:
        raise ValueError("must not be empty")
    return text


def size(least: int, most: int) -> Reader:
    """Bytes, written like 16MiB."""

    def read(text: str) -> int:
        bytes_ = -1 if "%" in text else parse_size(text, 0)
        if not least <= bytes_ <= most:
            raise ValueError(
                f"must be a size from {format_size(least)} to {format_size(most)}, written like "
                f"16MiB, not {text!r}"
            )
        return bytes_

    return read


def size_or_share(text: str) -> str:
    """A size such as 2GiB, or a share such as 40%; what that is in bytes is known later."""
    if parse_size(text, 2**62) <= 0:
        raise ValueError(f"must be above 0, not {text!r}")
    return text


def origin(text: str) -> str:
    """The origin of a web page, as browsers send it; ``*`` for any."""
    if text == "*":
        return text
    try:
        parts = urlsplit(text)
        is_origin = bool(parts.hostname) and text == f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        is_origin = False
    if not is_origin or "@" in text:
        raise ValueError(
            f"must be an origin such as https://app.example.org, without a path, or *, not {text!r}"
        )
    return text.lower()
