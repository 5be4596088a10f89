"""The sessions that requests belong to, by the names that clients give them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from radix_engine.cache import ALL, Everything


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session so far. ``hits``: its requests of which something was cached; ``idle_s``: seconds
    since the last one."""

    tenant: str | None
    name: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    hits: int
    idle_s: float


@dataclass(slots=True)
class _Session:
    last_used: float
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    hits: int = 0


class Sessions:
    """By tenant and name, the ``most`` that were used last. One thread at a time."""

    def __init__(self, most: int = 4096, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._known: OrderedDict[tuple[str | None, str], _Session] = OrderedDict()

    def __len__(self) -> int:
        """How many are known. Any thread."""
        return len(self._known)

    def used(self, tenant: str | None, name: str, prompt_tokens: int, cached_tokens: int) -> None:
        """A request's prompt has been computed, so much of it was cached. Cost: constant."""
        session = self._known.setdefault((tenant, name), _Session(0.0))
        self._known.move_to_end((tenant, name))
        session.last_used = self._clock()
        session.requests += 1
        session.prompt_tokens += prompt_tokens
        session.cached_tokens += cached_tokens
        session.hits += cached_tokens > 0
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def seen(self, scope: str | Everything | None = ALL) -> list[SessionView]:
        """A tenant's sessions, or all, the last used first."""
        now = self._clock()
        return [
            SessionView(
                tenant,
                name,
                each.requests,
                each.prompt_tokens,
                each.cached_tokens,
                each.hits,
                max(0.0, now - each.last_used),
            )
            for (tenant, name), each in reversed(self._known.items())
            if scope is ALL or scope == tenant
        ]
