"""Who gives its blocks back when there are too few."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.request import Request

# Preempted as often as this, a request is spared as long as there are others.
_OFTEN = 3


def cheapest_to_lose(running: Iterable[Request], lost: Callable[[Request], int]) -> Request | None:
    """The running request that a preemption costs least, by ``lost`` (computed tokens).

    Never the one that arrived first, so that somebody always gets on; None where it is alone. Those
    that were preempted often already are spared while there are others. Where the cost is equal,
    the one that arrived last goes. Cost: ``lost`` of each.
    """
    candidates = sorted(running, key=lambda request: request.arrival)[1:]
    if not candidates:
        return None
    spared = [request for request in candidates if request.preemptions < _OFTEN]
    return min(spared or candidates, key=lambda request: (lost(request), -request.arrival))
