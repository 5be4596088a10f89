"""Regular expressions over bytes, by derivatives: what is left of one after some bytes.

J. Brzozowski, "Derivatives of regular expressions", 1964.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Regex:
    """``never`` matches nothing, ``empty`` the empty text, ``byte`` the one byte; ``then`` its
    parts one after the other, ``either`` one of them, ``many`` its first any number of times."""

    kind: Literal["never", "empty", "byte", "then", "either", "many"]
    byte: int = 0
    parts: tuple[Regex, ...] = ()

    @property
    def may_end(self) -> bool:
        """Whether the empty text matches."""
        if self.kind == "then":
            return all(part.may_end for part in self.parts)
        if self.kind == "either":
            return any(part.may_end for part in self.parts)
        return self.kind in ("empty", "many")

    def after(self, data: bytes) -> Regex:
        """What must follow ``data``; `NEVER` where nothing makes it match."""
        left = self
        for byte in data:
            left = _after_byte(left, byte)
        return left


NEVER, EMPTY = Regex("never"), Regex("empty")


def literal(text: str) -> Regex:
    """A text itself."""
    whole = EMPTY
    for byte in text.encode():
        whole = then(whole, Regex("byte", byte))
    return whole


def then(first: Regex, second: Regex) -> Regex:
    """One after the other."""
    if NEVER in (first, second):
        return NEVER
    if first == EMPTY:
        return second
    return first if second == EMPTY else Regex("then", parts=(first, second))


def either(first: Regex, second: Regex) -> Regex:
    """One or the other."""
    if first == second or second == NEVER:
        return first
    return second if first == NEVER else Regex("either", parts=(first, second))


def many(part: Regex) -> Regex:
    """Any number of times."""
    return EMPTY if part in (NEVER, EMPTY) else Regex("many", parts=(part,))


def _after_byte(regex: Regex, byte: int) -> Regex:
    if regex.kind == "byte":
        return EMPTY if regex.byte == byte else NEVER
    if regex.kind == "either":
        return either(_after_byte(regex.parts[0], byte), _after_byte(regex.parts[1], byte))
    if regex.kind == "many":
        return then(_after_byte(regex.parts[0], byte), regex)
    if regex.kind == "then":
        first, second = regex.parts
        begun = then(_after_byte(first, byte), second)
        return either(begun, _after_byte(second, byte)) if first.may_end else begun
    return NEVER
