"""The waiting requests: who is tried next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

from sortedcontainers import SortedDict

from radix_engine.cache import MatchView, PrefixIndex
from scheduler.fairness import Fairness
from scheduler.order import Order, make_order
from scheduler.passing import Passing
from scheduler.plan import ScheduledSpan
from scheduler.prompt_trie import TOKEN_BYTES, PromptTrie
from scheduler.request import Request
from scheduler.trie_node import TrieNode
from scheduler.values import valued


class Line(NamedTuple):
    """The requests that one order covers: all, or one tenant's."""

    trie: PromptTrie
    order: Order
    passing: Passing


class Candidate(NamedTuple):
    """A request taken out of the queue. ``first``: nobody may be admitted before it any more."""

    request: Request
    first: bool
    line: Line


class WaitingQueue:
    """Requests that hold nothing yet, and what they and the running ones have in common.

    ::

        preempted, by arrival            first of all: they have waited before
        passed by ``max_passed_by``      the oldest, whatever the order says
        the order's best

    With ``fair`` each tenant has a line of its own, and the one that got least so far has the turn.
    Who is admitted in the turn of others, since these do not fit or had better wait, has passed
    them.

    A request is in the trie until it ends, running or not, so that the order knows what the running
    ones have stored or are about to. The trie is told what is stored, not what is evicted: what it
    knows of cached prefixes is an upper bound, which `settle` corrects for each candidate.
    """

    def __init__(
        self, cache: PrefixIndex[Any, Any], order: str, max_passed_by: int, *, fair: bool
    ) -> None:
        self._cache = cache
        self._order = order
        self._max_passed_by = max_passed_by
        self._fairness = Fairness() if fair else None
        self._lines: dict[str | None, Line] = {}
        self._requests: dict[int, Request] = {}
        self._new: dict[str | None, int] = {}  # those that have never run, by tenant
        self._preempted: SortedDict[tuple[int, int], Request] = SortedDict()
        self._flushes = cache.counters.flushes
        self._outside: set[int] = set()  # running, but nobody waits for what they store
        self._arrivals = count(1)
        make_order(order, PromptTrie(cache.block_size))  # a name that there is none of is refused

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._requests

    @property
    def num_new(self) -> int:
        """Those that have never run."""
        return len(self._requests) - len(self._preempted)

    def num_new_of(self, tenant: str | None) -> int:
        """A tenant's requests that have never run."""
        return self._new.get(tenant, 0)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def add(self, request: Request) -> None:
        """Queue a request that is new, or was preempted and let go of all it held."""
        self._requests[request.request_id] = request
        if request.preemptions:
            self._preempted[_place(request)] = request
            return
        request.arrival = next(self._arrivals)
        line = self._line(request)
        line.passing.arrived(request)
        line.trie.add(request, lambda node: self._look_up(request, node))
        line.order.add(request)
        tenant = request.namespace.tenant
        self._new[tenant] = self._new.get(tenant, 0) + 1
        if self._fairness is not None:
            self._fairness.waits(tenant)

    def next(self, now: float) -> Candidate | None:
        """Take out who is tried next; `started` or `put_back` follows."""
        candidate = self._next(now)
        if candidate is not None:
            del self._requests[candidate.request.request_id]
        return candidate

    def next_few(self, count: int, now: float) -> list[Request]:
        """Who will be tried next; they wait on. Cost: that of ``next``, for each."""
        few: list[Request] = []
        while len(few) < count and (candidate := self.next(now)) is not None:
            few.append(candidate.request)
        for request in few:
            self.put_back(request)
        return few

    def put_back(self, request: Request) -> None:
        """A candidate waits on."""
        self._requests[request.request_id] = request
        if request.preemptions:
            self._preempted[_place(request)] = request
            return
        self._line(request).order.add(request)

    def started(self, candidate: Candidate) -> None:
        """A candidate runs from now on."""
        request, _, line = candidate
        if request.preemptions:
            line.trie.add(request, lambda node: self._look_up(request, node))
        else:
            line.passing.admitted()
            self._is_no_longer_new(request)
            if self._fairness is not None:
                self._take_turn(request, self._fairness)
        line.trie.start(request)

    def forked(self, branch: Request) -> None:
        """A branch runs, which never waited. What it computes is its own answer, for which nobody
        waits: it stays outside of the trie."""
        self._outside.add(branch.request_id)

    def left_running(self, request: Request) -> None:
        """A running request was preempted; it is about to be added again."""
        self._leave_trie(request)

    def flushed(self, running: Iterable[Request]) -> None:
        """To be called at every step: after a flush nobody waits for those who run already."""
        if self._flushes == self._cache.counters.flushes:
            return
        self._flushes = self._cache.counters.flushes
        for request in running:
            self._leave_trie(request)
            self._outside.add(request.request_id)

    def ended(self, request: Request) -> None:
        """A request, waiting or running, is over."""
        waited = self._requests.pop(request.request_id, None)
        if waited is not None and request.preemptions:
            del self._preempted[_place(request)]
            return
        line = self._line(request)
        if waited is not None:
            line.order.discard(request)
            self._is_no_longer_new(request)
            if self._fairness is not None:
                self._fairness.waits_no_longer(request.namespace.tenant)
        self._leave_trie(request)

    def stored(self, request: Request) -> None:
        """What a running request's lease covers is in the cache now, or will be after this step."""
        assert request.lease is not None
        if request.request_id not in self._outside:
            self._line(request).trie.cover(request, request.lease.num_tokens)

    def settle(self, candidate: Candidate, believed: int, match: MatchView) -> bool:
        """Correct what the order ``believed`` of a candidate (in tokens). False where it is not the
        best any more, and must be put back."""
        found = whole_tokens(match)
        if found == believed:
            return True
        candidate.line.trie.settle(candidate.request, found)
        return found > believed

    def computed(self, spans: Iterable[ScheduledSpan]) -> None:
        """A step has computed these, for their tenants, who have been charged for prompts."""
        if self._fairness is None:
            return
        for request, start, computed, _ in spans:
            known = max(start, request.num_prompt_tokens, request.most_computed_tokens)
            if start + computed > known:
                self._fairness.charge(request.namespace.tenant, start + computed - known)

    @property
    def most_passed_by(self) -> int:
        """The most that were admitted before any request so far. Cost: O(lines)."""
        return max((line.passing.most for line in self._lines.values()), default=0)

    def passed_by(self, request: Request) -> int:
        """By how many a waiting request was passed. Cost: O(waiting)."""
        return self._line(request).passing.passed_by(request)

    def _next(self, now: float) -> Candidate | None:
        if self._preempted:
            request = self._preempted.popitem(0)[1]
            return Candidate(request, True, self._line(request))
        for line in self._lines_in_turn():
            oldest = line.passing.oldest()
            if oldest is None:
                continue
            request, passed_by = oldest
            if passed_by >= self._max_passed_by:
                if request.request_id not in self._requests:
                    return None  # it was tried before it came to this: the next step begins with it
                line.order.discard(request)
                return Candidate(request, True, line)
            best = line.order.best(now)
            if best is not None:
                return Candidate(best, False, line)
        return None

    def _is_no_longer_new(self, request: Request) -> None:
        tenant = request.namespace.tenant
        self._new[tenant] -= 1
        if not self._new[tenant]:
            del self._new[tenant]

    def _take_turn(self, request: Request, fairness: Fairness) -> None:
        tenant = request.namespace.tenant
        for other in fairness.in_turn():
            if other == tenant:
                break
            self._lines[other].passing.passed_all()
        fairness.waits_no_longer(tenant)
        fairness.charge(tenant, request.num_prompt_tokens - (request.cached_tokens or 0))

    def _lines_in_turn(self) -> Iterable[Line]:
        if self._fairness is None:
            return self._lines.values()
        return (self._lines[tenant] for tenant in self._fairness.in_turn())

    def _look_up(self, request: Request, node: TrieNode) -> int:
        """Whole blocks' tokens that are cached of a request that enters the trie below ``node``."""
        match = self._cache.match(
            request.run,
            request.namespace,
            request.mode,
            near=node.near,
            shared_tokens=node.end // TOKEN_BYTES,
            rows=False,
        )
        node.near = request.near = match
        found: int = match.num_tokens
        return found

    def _leave_trie(self, request: Request) -> None:
        if request.request_id in self._outside:
            self._outside.remove(request.request_id)
        else:
            self._line(request).trie.remove(request)

    def _line(self, request: Request) -> Line:
        tenant = None if self._fairness is None else request.namespace.tenant
        line = self._lines.get(tenant)
        if line is None:
            trie = PromptTrie(self._cache.block_size)
            line = self._lines[tenant] = Line(trie, make_order(self._order, trie), Passing())
        return line


def _place(request: Request) -> tuple[int, int]:
    return request.arrival, request.request_id  # branches arrive together


def match_of(request: Request, cache: PrefixIndex[Any, Any]) -> MatchView:
    """How far the cache covers the request now; the match is kept with the request."""
    match = request.match
    if match is None or match.version != cache.version:
        near, tokens = match or request.near, len(request.tokens)
        match = cache.match(
            request.whole_run, request.namespace, request.mode, near=near, shared_tokens=tokens
        )
        match = request.match = valued(match, request, cache)
    return match


def whole_tokens(match: MatchView) -> int:
    """Tokens that a match covers in whole blocks."""
    return match.num_tokens - match.copy_rows
