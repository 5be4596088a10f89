"""Whose turn it is: the waiting tenant that has been given the fewest computed tokens.

The virtual token counter of Sheng and others (Fairness in Serving Large Language Models, OSDI
2024). A counter a tenant grows by the tokens that are computed for it: by those of a prompt at once
when it starts, so that others have the next turn of the same step, and by those of answers as they
come. A tenant that comes back after a while without waiting requests starts at the lowest counter
of those that wait, or at that of who waited last, so that nobody saves turns up while idle.
"""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList


class Fairness:
    """Counters of computed tokens by tenant (None: requests of nobody in particular). Costs:
    O(log tenants)."""

    def __init__(self) -> None:
        self._given: dict[str | None, int] = {}
        self._waiting: dict[str | None, int] = {}
        self._last: str | None = None  # who has left the turns last
        self._turns: SortedList[tuple[int, str, str | None]] = SortedList()

    def waits(self, tenant: str | None) -> None:
        """One more request of a tenant waits."""
        waiting = self._waiting.get(tenant, 0)
        self._waiting[tenant] = waiting + 1
        if waiting:
            return
        lowest = self._turns[0][0] if self._turns else self._given.get(self._last, 0)
        self._given[tenant] = max(self._given.get(tenant, 0), lowest)
        self._turns.add(self._turn(tenant))

    def waits_no_longer(self, tenant: str | None) -> None:
        """One request of a tenant runs, or has ended."""
        self._waiting[tenant] -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]
            self._last = tenant
            self._turns.remove(self._turn(tenant))

    def charge(self, tenant: str | None, tokens: int) -> None:
        """So many tokens are computed for a tenant."""
        waits = tenant in self._waiting
        if waits:
            self._turns.remove(self._turn(tenant))
        self._given[tenant] = self._given.get(tenant, 0) + tokens
        if waits:
            self._turns.add(self._turn(tenant))

    def in_turn(self) -> Iterator[str | None]:
        """The tenants with waiting requests, who got least first. Nothing may be charged
        meanwhile."""
        for _, _, tenant in self._turns:
            yield tenant

    def _turn(self, tenant: str | None) -> tuple[int, str, str | None]:
        # The name breaks ties; None sorts with the empty name and is never compared to another.
        return self._given[tenant], "" if tenant is None else "t" + tenant, tenant
