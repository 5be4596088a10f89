"""How many requests come in: a bound on all that wait, and bounds on each tenant's."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from server.errors import RequestRefused
from server.http.engine_like import EngineLike
from server.queue_limit import refuse_if_full, refuse_if_too_many
from server.tenants import TenantLimits


class Door:
    """Counts requests from when they come to when they end, and refuses those that are too many.

    A request is one prompt. Those that are still tokenised count as waiting, so that a flood is
    refused before that work is done for it. ``limits_of``: a tenant's limits at this moment.
    Thread-safe.
    """

    def __init__(self, engine: EngineLike, limits_of: Callable[[str | None], TenantLimits]) -> None:
        self._engine = engine
        self._limits_of = limits_of
        self._lock = threading.Lock()
        self._in_flight: Counter[str | None] = Counter()  # by tenant
        self._coming: Counter[str | None] = Counter()  # of these, not in the engine's queue yet

    def enter(self, tenant: str | None) -> Visit:
        """A request has come, and its body is about to be read. Raises RequestRefused 429."""
        with self._lock:
            self._check_in_flight(tenant, 1)
            self._in_flight[tenant] += 1
        return Visit(self, tenant)

    def in_flight(self, tenant: str | None) -> int:
        """A tenant's requests that have come and not ended."""
        return self._in_flight[tenant]

    def _expect(self, visit: Visit, prompts: int) -> None:
        with self._lock:
            if visit.is_over:
                return
            more, coming = prompts - visit.in_flight, prompts - visit.coming
            self._check_in_flight(visit.tenant, more, prompts)
            self._check_queues(visit.tenant, coming, prompts)
            self._change(visit, more, coming)

    def _give_back(self, visit: Visit, *, in_flight: int = 0, coming: int = 0) -> None:
        with self._lock:
            if not visit.is_over:
                self._change(visit, -in_flight, -coming)

    def _leave(self, visit: Visit) -> None:
        with self._lock:
            self._change(visit, -visit.in_flight, -visit.coming)
            visit.is_over = True

    def _change(self, visit: Visit, in_flight: int, coming: int) -> None:
        visit.in_flight += in_flight
        visit.coming += coming
        for counts, more in ((self._in_flight, in_flight), (self._coming, coming)):
            counts[visit.tenant] += more
            if not counts[visit.tenant]:
                del counts[visit.tenant]

    def _check_in_flight(self, tenant: str | None, more: int, prompts: int = 1) -> None:
        most = self._limits_of(tenant).max_in_flight
        if most is None:
            return
        refuse_if_too_many(prompts, most, f"the limit of tenant {tenant} (max_in_flight)")
        if self._in_flight[tenant] + more > most:
            raise RequestRefused(
                f"tenant {tenant} has {self._in_flight[tenant]} requests in flight, and its limit "
                f"(max_in_flight) is {most}; send fewer at a time, or ask the operator for more",
                code="tenant_in_flight_limit",
                status=429,
            )

    def _check_queues(self, tenant: str | None, more: int, prompts: int) -> None:
        state, limits = self._engine.queue(tenant), self._engine.info.limits
        if (most := limits.max_waiting) is not None:
            refuse_if_too_many(prompts, most + limits.max_running, "the queue (--max-waiting)")
            refuse_if_full(state, most, more, self._coming.total())
        most = self._limits_of(tenant).max_queued
        if most is None:
            return
        name = f"the limit of tenant {tenant} (max_queued)"
        refuse_if_too_many(prompts, most + limits.max_running, name)
        waiting = state.of_tenant + self._coming[tenant]
        if waiting + more > most + state.places:
            raise RequestRefused(
                f"tenant {tenant} has {waiting} requests that wait to be started, and its limit "
                f"(max_queued) is {most}; try again later, or ask the operator for more",
                code="tenant_queue_full",
                status=429,
            )


class Visit:
    """The places that one HTTP request holds: ``in_flight``, and of these ``coming`` that are not
    in the engine's queue yet. Any thread."""

    def __init__(self, door: Door, tenant: str | None) -> None:
        self._door = door
        self.tenant = tenant
        self.in_flight = 1
        self.coming = 0
        self.is_over = False

    def expect(self, prompts: int) -> None:
        """So many prompts are about to be tokenised or queued. Raises RequestRefused."""
        self._door._expect(self, prompts)

    def queued(self) -> None:
        """One of them is in the engine's queue."""
        self._door._give_back(self, coming=1)

    def ended(self) -> None:
        """One of them has been answered."""
        self._door._give_back(self, in_flight=1)

    def leave(self) -> None:
        """Give back whatever is left. Nothing happens after that."""
        self._door._leave(self)
