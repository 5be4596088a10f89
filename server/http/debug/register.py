"""The recent requests for answers, by the ids that clients know."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from server.http.request_log import Ending
from server.http.submission import Submission
from server.metrics import RequestTimes
from server.outputs import Usage


@dataclass(slots=True)
class Entry:
    """One request. ``started_s``: on the clock of ``time.monotonic``. ``submission``: while it is
    open. ``ending`` and ``total_s`` are set at its end."""

    id: str
    client_id: str | None
    endpoint: str
    tenant: str | None
    times: RequestTimes
    submission: Submission | None
    started_s: float = field(default_factory=time.monotonic)
    ending: Ending | None = None
    total_s: float = 0.0

    @property
    def engine_ids(self) -> tuple[int, ...]:
        """What the engine calls its prompts, in order."""
        if self.ending is not None:
            return self.ending.engine_ids
        return () if self.submission is None else self.submission.engine_ids

    @property
    def usage(self) -> Usage:
        """Its counts, as far as they have come."""
        if self.ending is not None:
            return self.ending.usage
        return Usage(0, 0, 0) if self.submission is None else self.submission.usage()


class Register:
    """The ``most`` that came last, and all that are open. On the event loop. Cost: constant."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def begin(self, entry: Entry) -> None:
        """A request has come."""
        self._entries[entry.id] = entry
        if len(self._entries) > self._most:
            for oldest in list(self._entries.values())[: len(self._entries) - self._most]:
                if oldest.ending is None:
                    break  # the door bounds how many are open
                del self._entries[oldest.id]

    def end(self, ending: Ending, total_s: float) -> None:
        """It is over, so many seconds after it came."""
        entry = self._entries.get(ending.request_id)
        if entry is not None:
            entry.ending, entry.total_s, entry.submission = ending, total_s, None

    def get(self, request_id: str) -> Entry | None:
        """The request of this id; a client's own id finds the last one that had it. Cost: constant,
        or O(requests)."""
        found = self._entries.get(request_id)
        return found or next((each for each in self if each.client_id == request_id), None)

    def __iter__(self) -> Iterator[Entry]:
        """All, the last one first."""
        return reversed(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def by_engine_id(self) -> dict[int, str]:
        """The ids that clients know, by the engine's. Cost: O(requests)."""
        return {number: entry.id for entry in self for number in entry.engine_ids}
