"""When Python's garbage collector runs in the server: in small pieces while there is work.

Reference counts free nearly everything at once; the collector is for what refers to itself in a
circle. It has three generations. What is made is young; what outlives a young or a middle
collection moves on, and only a full collection looks at all there is. It takes about half a
microsecond for each object it looks at, and no thread of the process does anything meanwhile.

Left to itself it is too late, in two ways. A full collection comes in the middle of a step, and
looks at torch, at transformers and at the whole prefix tree: hundreds of milliseconds. And a young
one comes after 700 objects more were made than freed: in a server that evicts as much as it stores
that may be hundreds of thousands later, and then takes tens of milliseconds, too.

So here what start-up loaded is frozen (no collection looks at it), a collection of all that is new
comes every few steps, and a full one when no request runs. What has lived until then is frozen as
well, so that the next one does not look at the whole tree again. The prefix cache and the scheduler
make no circles, so reference counts free what leaves them, frozen or not; for the circles of others
(exceptions, the libraries that speak HTTP) all is looked at once in a long while: hourly where
there are idle moments, and every six hours where there are none.

For Python 3.11 to 3.13, whose collectors work alike; all of it is the standard library's ``gc``.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

# New objects before a young collection, and young ones before a middle one: Python's own numbers.
# The last one is for full collections: never by count.
_THRESHOLDS = (700, 10, 1_000_000_000)
_STEPS = 16
_IDLE_S = 60.0
_BUSY_S = 600.0
_IDLE_DEEP_S = 3600.0
_BUSY_DEEP_S = 6 * 3600.0


class GarbageCollector:
    """Runs collections between the engine's steps and when it is idle. One thread at a time.

    Made by ``tame_garbage_collector``. ``clock`` gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps = 0  # since the last full collection
        self._full_at = self._deep_at = self._busy_since = clock()

    @property
    def has_to_do(self) -> bool:
        """Whether ``when_idle`` will have something to collect, now or within a minute."""
        return self._steps > 0

    def between_steps(self) -> None:
        """To be called after every step. Every 16th time it collects what was made since the last
        time; after ten minutes of work without an idle collection it does a full one; and one that
        looks at what was frozen, too, where there has been none for six hours.

        Cost: about half a microsecond for each object that was made and is still there (a new leaf
        of the prefix cache is three), else under a microsecond. Every ten minutes of unbroken work
        as much for what those have made; every six hours for each object there is, as in
        ``when_idle``: some 0.3 s at 100,000 nodes of the prefix tree.
        """
        if not self._steps:
            self._busy_since = self._clock()
        self._steps += 1
        if self._steps % _STEPS:
            return
        gc.collect(1)
        now = self._clock()
        if now - self._busy_since > _BUSY_S:
            self._full(now, deep=now - self._deep_at > _BUSY_DEEP_S)

    def when_idle(self) -> float:
        """To be called when no request runs. A full collection, at most once a minute and only if
        there were steps since the last; once in an hour also of all that was frozen.

        Returns the seconds it took; 0.0 without one. A request that comes meanwhile waits. Cost:
        half a microsecond for each object made since the last one; for the hourly one, each object
        there is: 0.15 s for 100,000 nodes of the prefix tree, and about as much for torch.
        """
        now = self._clock()
        if not self._steps or now - self._full_at < _IDLE_S:
            return 0.0
        self._full(now, deep=now - self._deep_at > _IDLE_DEEP_S)
        return self._clock() - now

    def _full(self, now: float, *, deep: bool) -> None:
        if deep:
            gc.unfreeze()
            self._deep_at = now
        gc.collect()
        gc.freeze()
        self._steps = 0
        self._full_at = self._clock()


def tame_garbage_collector() -> GarbageCollector:
    """To be called once, when everything is loaded and before the first request.

    Collects what loading left, freezes the rest, and leaves only young collections to Python. The
    engine's loop must call what is returned. Cost: one full collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    return GarbageCollector()
