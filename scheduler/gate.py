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

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from radix_engine.cache import TOKEN_BYTES, Namespace
from scheduler.budget import Limits
from scheduler.holding import Cache
from scheduler.request import Request
from scheduler.sessions import Session, Sessions

# Turns by which a context is expected to grow while it is under way.
_TURNS_AHEAD = 2.0
# Of the memory; the rest is for answers, and for sessions that have ended, which leave it late.
_FOR_CONTEXTS = 0.8


_Head = tuple[Namespace, bytes]  # the first tokens of prompts, and where they are stored


class _UnderWay(NamedTuple):
    """The sessions under way, their ``heads``, and with ``auto`` the ``tokens`` of all their
    contexts, in some turns' time; what those of a namespace share counts once."""

    sessions: Mapping[object, Session]
    heads: frozenset[_Head] = frozenset()
    tokens: float = 0.0


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
        self._lines: dict[str | None, OrderedDict[int, Request]] = {}  # no line is empty
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
        return len(self._lines.get(tenant, ()))

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
            self._lines.setdefault(tenant, OrderedDict())[request.request_id] = request
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
        """Those held that need not wait any longer; ``idle``: nothing else is to do. Costs, once
        and again for each: O(the sessions under way), times the heads that they have with ``auto``;
        O(its prompt + those sessions) for the first of each line, while there is room."""
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
        if idle:
            return self._take(next(iter(self._lines)), now)
        under_way = self._under_way(now)
        for tenant, line in self._lines.items():
            first = _first(line)
            # Another request may have begun its session since.
            if self._sessions.find(first) or self._has_room(first, under_way):
                return self._take(tenant, now)
        return None

    def _due(self) -> list[str | None]:
        """The lines whose first may not be passed any more."""
        return [t for t in self._lines if self._passed[t] >= self._max_passed_by]

    def _let_go(self, request: Request) -> bool:
        """The request is held no longer; whether it was."""
        if self._held.pop(request.request_id, None) is None:
            return False
        tenant = request.namespace.tenant
        line = self._lines[tenant]
        if _first(line) is request:
            self._passed[tenant] = 0
        del line[request.request_id]
        if not line:
            del self._lines[tenant], self._passed[tenant]
        return True

    def _take(self, tenant: str | None, now: float) -> Request:
        """The first of a line, whose session is under way from now on."""
        request = _first(self._lines[tenant])
        self._let_go(request)
        if tenant in self._lines:  # the others' turns come first
            self._lines[tenant] = self._lines.pop(tenant)
        session = self._sessions.find(request) or self._begin(request)
        self._sessions.note(session, request, now)
        return request

    def _under_way(self, now: float) -> _UnderWay:
        active = self._sessions.active(now)
        if self._limit != "auto":
            return _UnderWay(active)
        heads = frozenset((each.namespace, each.head) for each in active.values())
        shared = sum(_tokens(head) for head in heads if not _has_owner(head, active))
        growth = self._growth
        own = sum(session.own + growth for session in active.values())
        return _UnderWay(active, heads, own + shared)

    def _has_room(self, request: Request, under_way: _UnderWay) -> bool:
        if self._limit is not None and self._limit != "auto":
            return len(under_way.sessions) < self._limit
        cache = self._cache
        room = _FOR_CONTEXTS * cache.pool.num_blocks * cache.block_size - under_way.tokens
        if room <= 0:
            return False  # without a look-up
        cached = self._cached(request)
        head = request.namespace, _begin_of(request, cached)
        is_counted = head in under_way.heads or _has_owner(head, under_way.sessions)
        new = request.num_prompt_tokens - (cached if is_counted else 0)
        return new + self._growth <= room

    @property
    def _growth(self) -> float:
        """Tokens by which a context is expected to grow."""
        return _TURNS_AHEAD * (self._sessions.growth or 0.0)

    def _begin(self, request: Request) -> Session:
        session = self._sessions.begin(request)
        session.shared = self._cached(request)
        session.head = _begin_of(request, session.shared)
        return session

    def _cached(self, request: Request) -> int:
        """Tokens of its prompt that are stored now, in whole blocks."""
        match = self._cache.match(request.run, request.namespace, request.mode, rows=False)
        found: int = match.num_tokens
        return found


def _first(line: OrderedDict[int, Request]) -> Request:
    return next(iter(line.values()))


def _has_owner(head: _Head, sessions: Mapping[object, Session]) -> bool:
    """Whether a session counts this head among its own tokens."""
    space, run = head
    owners = (each for each in sessions.values() if len(each.head) < len(run))
    return any(each.run.startswith(run) and each.namespace == space for each in owners)


def _begin_of(request: Request, tokens: int) -> bytes:
    """The first tokens of a prompt."""
    return request.run[: tokens * TOKEN_BYTES]


def _tokens(head: _Head) -> int:
    return len(head[1]) // TOKEN_BYTES
