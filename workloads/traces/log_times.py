"""When a logged request came, and how long its reply took, in the forms that logs write it."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from workloads.traces.lines import TraceError
from workloads.traces.objects import Object, kind_of

_TIMES = ("timestamp", "created", "created_at", "time", "start_time")
_DURATIONS = (
    ("duration_s", 1.0),
    ("latency_s", 1.0),
    ("duration_ms", 1e-3),
    ("latency_ms", 1e-3),
    ("response_ms", 1e-3),
)
# Seconds since 1970 stay below the first until the year 5138; so what is above them is finer.
_LEAST_MS, _LEAST_US = 1e11, 1e14


def seconds_of(row: Object, where: str) -> float | None:
    """The first of ``timestamp``, ``created``, ``created_at``, ``time``, ``start_time``, in
    seconds: a number of seconds, milliseconds or microseconds since 1970 (told by its size) or of
    seconds since any start, or a date and time of ISO 8601 (UTC where it names no zone). Raises
    TraceError."""
    for field in _TIMES:
        value = row.get(field)
        if value is None:
            continue
        if isinstance(value, str):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                raise TraceError(
                    f"{where}: {field} must be a number or a date and time of ISO 8601, is "
                    f"{value[:40]!r}"
                ) from None
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        number = _number(value, field, where)
        return number / (1e6 if number >= _LEAST_US else 1e3 if number >= _LEAST_MS else 1.0)
    return None


def reply_seconds(row: Object, where: str) -> float | None:
    """How long the reply took, if the row says it: ``duration_s``, ``latency_s``, or the same, or
    ``response_ms``, in milliseconds. Raises TraceError."""
    for field, unit in _DURATIONS:
        if row.get(field) is not None:
            return _number(row[field], field, where) * unit
    return None


def _number(value: object, field: str, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TraceError(f"{where}: {field} must be a number, is {kind_of(value)}")
    return float(value)
