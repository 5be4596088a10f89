"""New sessions wait outside while the contexts of those under way fill the memory.

Where more conversations take turns than the cache holds contexts, each finds its own evicted when
it comes back, and computes all of it again. Fewer at a time, each then served from the cache, are
all done sooner. So the first request of a session is held back:

::

    submit --> goes on with a session that is known -----> the queue
               or begins one, whose context has room ----> the queue
               or begins one, and has not --> held --let in--> the queue

Held ones are let in as soon as there is room, when nothing else is to do, and where as many later
requests have gone past the first of them as may pass a waiting one: nobody waits for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from radix_engine.cache import TOKEN_BYTES
from scheduler.budget import Limits
from scheduler.holding import Cache
from scheduler.request import Request
from scheduler.sessions import Session, Sessions

# Turns by which a context is expected to grow while it is under way.
_TURNS_AHEAD = 2.0
# Of the memory; the rest is for answers, and for sessions that have ended, which leave it late.
_FOR_CONTEXTS = 0.8


class Gate:
    """Holds back first requests by ``limits.max_sessions``: a number of sessions, or ``auto``: as
    many as have room for their contexts together; None: nobody.

    Tenants take turns; each has a line of its own. At most ``max_passed_by`` later requests of
    sessions under way are let past a request once it is the first of its line.
    """

    def __init__(self, cache: Cache, limits: Limits) -> None:
        self._cache = cache
        self._limit = limits.max_sessions
        self._max_passed_by = limits.max_passed_by
        self._sessions = Sessions()
        self._held: dict[int, Request] = {}
        self._counts: dict[str | None, int] = {}  # of them, by tenant
        self._lines: dict[str | None, deque[Request]] = {}
        self._passed: dict[str | None, int] = {}  # by how many the first of each line was passed
        self._now = 0.0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._held

    def __iter__(self) -> Iterator[Request]:
        return iter(self._held.values())

    def num_of(self, tenant: str | None) -> int:
        """A tenant's requests that are held. Any thread."""
        return self._counts.get(tenant, 0)

    def arrives(self, request: Request, now: float) -> list[Request]:
        """A request has come; those that are to be queued now: itself, unless it is held until
        `let_in` has it, and before it those that may not be passed any more."""
        if self._limit is None:
            return [request]
        self._now = now
        session = self._sessions.find(request)
        if session is None:
            tenant = request.namespace.tenant
            self._held[request.request_id] = request
            self._counts[tenant] = self._counts.get(tenant, 0) + 1
            self._lines.setdefault(tenant, deque()).append(request)
            self._passed.setdefault(tenant, 0)
            return []
        before: list[Request] = []
        while due := self._due():
            before += [self._take(tenant, now) for tenant in due]
        self._sessions.note(session, request, now)
        for tenant in self._passed:
            self._passed[tenant] += 1
        return [*before, request]

    def let_in(self, now: float, *, idle: bool) -> Iterator[Request]:
        """Those held that need not wait any longer; ``idle``: nothing else is to do. Cost: O(the
        sessions under way) for each, and for each line."""
        self._now = now
        while self._held and (request := self._next(now, idle=idle)) is not None:
            idle = False
            yield request

    def ended(self, request: Request) -> bool:
        """A request has ended, wherever it was; whether it was held."""
        if self._limit is None:
            return False
        self._sessions.ended(request, self._now)
        return self._let_go(request)

    def _next(self, now: float, *, idle: bool) -> Request | None:
        self._drop_ended()
        for tenant, line in self._lines.items():
            # Another request may have begun its session since.
            if idle or self._sessions.find(line[0]) or self._has_room(line[0], now):
                return self._take(tenant, now)
        return None

    def _due(self) -> list[str | None]:
        """The lines whose first may not be passed any more."""
        self._drop_ended()
        return [t for t, passed in self._passed.items() if passed >= self._max_passed_by]

    def _let_go(self, request: Request) -> bool:
        """The request is held no longer; whether it was."""
        if self._held.pop(request.request_id, None) is None:
            return False
        tenant = request.namespace.tenant
        self._counts[tenant] -= 1
        if not self._counts[tenant]:
            del self._counts[tenant]
        return True

    def _drop_ended(self) -> None:
        """The first of each line is held; a line without any is none."""
        for tenant, line in list(self._lines.items()):
            while line and line[0].request_id not in self._held:
                line.popleft()
                self._passed[tenant] = 0
            if not line:
                del self._lines[tenant], self._passed[tenant]

    def _take(self, tenant: str | None, now: float) -> Request:
        """The first of a line, whose session is under way from now on."""
        line = self._lines.pop(tenant)
        request = line.popleft()
        self._let_go(request)
        del self._passed[tenant]
        if line:  # the others' turns come first
            self._lines[tenant] = line
            self._passed[tenant] = 0
        session = self._sessions.find(request) or self._begin(request)
        self._sessions.note(session, request, now)
        return request

    def _has_room(self, request: Request, now: float) -> bool:
        active = self._sessions.active(now)
        if self._limit is not None and self._limit != "auto":
            return len(active) < self._limit
        cache = self._cache
        room = _FOR_CONTEXTS * cache.pool.num_blocks * cache.block_size
        cached = self._cached(request)
        growth = _TURNS_AHEAD * (self._sessions.growth or 0.0)
        own = sum(session.own + growth for session in active.values())
        new = request.num_prompt_tokens - cached + growth
        heads = {session.head for session in active.values()} | {_head(request, cached)}
        return own + new + sum(map(_tokens, self._without_owner(heads, active))) <= room

    def _without_owner(
        self, heads: set[bytes], active: Mapping[object, Session]
    ) -> Iterator[bytes]:
        """Those that no session under way counts among its own tokens."""
        for head in heads:
            owners = (s for s in active.values() if len(s.head) < len(head))
            if not any(session.run.startswith(head) for session in owners):
                yield head

    def _begin(self, request: Request) -> Session:
        session = self._sessions.begin(request)
        session.shared = self._cached(request)
        session.head = _head(request, session.shared)
        return session

    def _cached(self, request: Request) -> int:
        """Tokens of its prompt that are stored now, in whole blocks."""
        match = self._cache.match(request.run, request.namespace, request.mode, rows=False)
        found: int = match.num_tokens
        return found


def _head(request: Request, tokens: int) -> bytes:
    """The first tokens of a prompt."""
    return request.run[: tokens * TOKEN_BYTES]


def _tokens(head: bytes) -> int:
    return len(head) // TOKEN_BYTES
