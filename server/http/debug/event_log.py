"""What the cache and the scheduler did between two looks, line by line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from server.debug.inspector import Look

_KEPT = 200
# Counters whose growth is a line: the kind of line and what it says.
_LINES = (
    ("evicted_blocks", "evicted", "{} blocks evicted to make room"),
    ("expired_blocks", "expired", "{} blocks expired, idle for longer than the ttl"),
    ("withdrawn_blocks", "withdrawn", "{} blocks withdrawn that were never computed"),
    ("flushes", "flushed", "the cache was flushed ({} times)"),
)


class EventLog:
    """The last lines. Lines of counters are of the time since the look before."""

    def __init__(self) -> None:
        self._lines: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._last: Mapping[str, int] | None = None
        self._preempted_s = 0.0

    def after(
        self, found: Look, names: Mapping[int, str], to_unix_s: Callable[[float], float]
    ) -> list[dict[str, Any]]:
        """The new lines that a look shows. ``names``: ids that clients know, by the engine's."""
        at, counters = to_unix_s(found.at_s), found.readings.counters
        new = []
        if self._last is not None:
            for name, kind, text in _LINES:
                more = counters.get(name, 0) - self._last.get(name, 0)
                if more > 0:
                    new.append(_line(at, kind, text.format(more)))
            for when, engine_id in found.preempted:
                if when > self._preempted_s:
                    name = names.get(engine_id, f"request {engine_id}")
                    new.append(
                        _line(
                            to_unix_s(when), "preempted", f"{name} gave its blocks back and waits"
                        )
                    )
        self._last = counters
        self._preempted_s = max((when for when, _ in found.preempted), default=self._preempted_s)
        self._lines.extend(new)
        return new

    def recent(self) -> list[dict[str, Any]]:
        """The last 200."""
        return list(self._lines)


def _line(at: float, kind: str, text: str) -> dict[str, Any]:
    return {"at": round(at, 3), "kind": kind, "text": text}
