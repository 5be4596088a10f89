"""When Python's garbage collector runs in the server: never for long while there is work.

Reference counts free nearly everything at once; the collector is for what refers to itself in a
circle. It knows three generations. A young collection looks at what was made since the last one,
some 700 objects, or 7,700 every eleventh time: a millisecond at most. A full one looks at all
there is: about 0.1 microseconds an object, so 30 ms for a tree of 100,000 leaves and half a second
for torch and transformers. In the middle of a step that is a pause that every request feels.

So what start-up loaded is frozen (no collection looks at it again), young collections stay as they
are, and a full one runs when no request does. The prefix cache and the scheduler make no circles
that outlive their use, so what waits for a full collection comes from exceptions and from the
libraries that speak HTTP. A server that is never idle still gets one, after some 1.5 million
objects more than were freed (see ``_MIDDLE_BEFORE_FULL``).

For Python 3.11 to 3.13, whose collectors work alike; all of it is the standard library's ``gc``.
"""

from __future__ import annotations

import gc
import time

# New objects before a young collection, and young ones before a middle one: Python's own numbers
# (3.13 has 2,000 for the first, which makes middle collections three times as long).
_YOUNG, _MIDDLE = 700, 10
# Middle collections, of about 7,700 new objects each, after which a full one runs even in the
# middle of the work. Python's own number is 10.
_MIDDLE_BEFORE_FULL = 200
# And so many are worth a full one as soon as nobody waits.
_MIDDLE_WHEN_IDLE = 2


def tame_garbage_collector() -> None:
    """To be called once, when everything is loaded and before the first request.

    Collects what loading left, freezes the rest and puts full collections off. Cost: one full
    collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _MIDDLE_BEFORE_FULL)


def collect_when_idle() -> float:
    """A full collection, if enough was made since the last one; to be called when no request runs.

    Returns the seconds it took, 0.0 where it was not worth it; so calling it whenever the server
    turns idle is cheap (0.2 microseconds). While it runs no thread of the process does anything: a
    request that comes just then waits. Cost: about 0.1 microseconds for each object that was made
    since start-up and still lives; a leaf of the prefix cache is about three.
    """
    if gc.get_count()[2] < _MIDDLE_WHEN_IDLE:
        return 0.0
    start = time.perf_counter()
    gc.collect()
    return time.perf_counter() - start
