"""Where two token runs that begin differently go on alike."""

from __future__ import annotations

from typing import NamedTuple

from radix_engine.cache import TOKEN_BYTES

# Both go on alike where they share so many tokens in a row.
NEEDLE = 16
_LONGEST_SPAN = 1 << 14


class Alike(NamedTuple):
    """After ``skipped`` tokens of the one and ``stored_skipped`` of the other both go on with the
    same ``tokens`` tokens."""

    skipped: int
    stored_skipped: int
    tokens: int


def alike_after(run: bytes, stored: bytes, start: int = 0) -> Alike | None:
    """The first stretch that two packed runs have in common, from token ``start`` of the first
    on; None where there is none.

    A stretch is found where it is at least half as long as what differs before it, and longer than
    16 tokens. Cost: some thirty searches of the second run, which a memory scan does.
    """
    count = len(run) // TOKEN_BYTES
    last = min(count - NEEDLE, start + _LONGEST_SPAN)
    at = start
    while at <= last:
        found = _aligned(stored, run[at * TOKEN_BYTES : (at + NEEDLE) * TOKEN_BYTES])
        if found >= 0:
            back = _shared_before(
                run[: at * TOKEN_BYTES], stored[: found * TOKEN_BYTES], at - start
            )
            length = _shared(run[at * TOKEN_BYTES :], stored[found * TOKEN_BYTES :])
            return Alike(at - back, found - back, back + length)
        at += max(1, (at - start) // 4)
    return None


def _aligned(run: bytes, needle: bytes) -> int:
    """At which token of a run a needle begins; -1 where it does not."""
    place = run.find(needle)
    while place >= 0 and place % TOKEN_BYTES:
        place = run.find(needle, place + 1)
    return place // TOKEN_BYTES if place >= 0 else -1


def _shared(one: bytes, other: bytes) -> int:
    """How many tokens two runs begin with alike. Cost: O(what they share)."""
    low, high = 0, min(len(one), len(other)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        part = slice(low * TOKEN_BYTES, middle * TOKEN_BYTES)
        if one[part] == other[part]:
            low = middle
        else:
            high = middle - 1
    return low


def _shared_before(one: bytes, other: bytes, most: int) -> int:
    """How many tokens two runs end with alike, at most so many."""
    count = 0
    most = min(most, len(one) // TOKEN_BYTES, len(other) // TOKEN_BYTES)
    while count < most:
        left = len(one) - count * TOKEN_BYTES, len(other) - count * TOKEN_BYTES
        if one[left[0] - TOKEN_BYTES : left[0]] != other[left[1] - TOKEN_BYTES : left[1]]:
            break
        count += 1
    return count
