"""What a rank reports to rank 0: that something is done, was refused, or failed."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from enum import IntEnum

_HEAD = struct.Struct("=Bq")


class Outcome(IntEnum):
    """What came of a message."""

    DONE = 1
    REFUSED = 2
    """Nothing came of it; the rank goes on."""
    FAILED = 3
    """The rank has ended."""


@dataclass(frozen=True, slots=True)
class Report:
    """An outcome; ``at_ns`` by the machine's clock, which all processes share."""

    outcome: Outcome
    at_ns: int
    text: str


def encode_report(outcome: Outcome, text: str = "") -> bytes:
    """A report of now."""
    return _HEAD.pack(outcome, time.monotonic_ns()) + text.encode("utf-8", "replace")


def decode_report(message: bytes) -> Report:
    """The report in a message."""
    outcome, at_ns = _HEAD.unpack_from(message)
    return Report(Outcome(outcome), at_ns, message[_HEAD.size :].decode("utf-8"))
