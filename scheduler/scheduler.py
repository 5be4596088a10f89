"""Continuous batching: each step gives every running request some tokens and admits waiting ones.

    submit -> waiting --plan: match, lease, allocate, announce--> running --commit--> finished
                 ^                                                   |
                 +------------------ preempt: release ---------------+

``plan`` decides and takes blocks; the caller computes the plan; ``commit`` records what was
computed, publishes full blocks and ends requests. Between the two only ``abort`` may be called,
which may send others back that stand on what the aborted one was to compute: commit what is
``still_running``. One thread; no tensor. Times are the caller's, in seconds.

Where a device computes, the next step can be planned meanwhile: ``plan``, ``go_ahead``, ``plan`` of
the next, ``commit`` of the first, ``go_ahead`` of the next, and so on. A device that takes steps in
turn needs no more than that: a block that a commit frees is written by a later step only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from radix_engine.cache import PrefixIndex
from scheduler import checks, continuing, holding
from scheduler.admission import Admission
from scheduler.ahead import assume, settle
from scheduler.budget import Limits, QueueFull
from scheduler.counters import Counters, MatchEnds
from scheduler.draft import Draft
from scheduler.ended_leases import EndedLeases
from scheduler.gate import Gate
from scheduler.lifecycle import Lifecycle
from scheduler.making_room import make_room
from scheduler.plan import NewToken, ScheduledSpan, StepPlan, check_tokens
from scheduler.queue import WaitingQueue
from scheduler.request import Request, State
from scheduler.running import Running
from scheduler.sparing import Sparing

_make_token = NewToken._make  # a third less than calling the class costs


class Scheduler:
    """Plans steps over one prefix cache within ``limits``.

    ``order``: who of the waiting is tried first: ``lpm`` (longest cached prefix), ``dfs`` (by
    prefix tree, for batches that are there at once), ``hrrn`` (highest response ratio), ``fcfs`` or
    ``priority``. Whatever the order, at most ``limits.max_passed_by`` later arrivals are admitted
    before a request. ``fair``: tenants take turns, by the tokens computed for each; of others'
    requests only those that were admitted out of turn count as passing it.
    """

    def __init__(
        self,
        cache: PrefixIndex[Any, Any],
        limits: Limits,
        order: str = "lpm",
        *,
        fair: bool = False,
    ) -> None:
        self.cache = cache
        self.limits = limits
        self.counters = Counters()
        self.match_ends = MatchEnds()
        self._waiting = WaitingQueue(cache, order, limits.max_passed_by, fair=fair)
        self._running = Running(cache)
        self._gate = Gate(cache, limits)
        self._requests = Lifecycle(
            cache, self._waiting, self._running, self.counters, limits.max_running, self._gate
        )
        self._sparing = Sparing(cache, limits, self._waiting, self.counters)
        self._ended = EndedLeases()
        self._is_ahead = False  # a step is being computed, and others are planned meanwhile
        self._lacks_room = False
        self._admission = Admission(
            cache, limits, self._waiting, self._running, self.counters, self.match_ends
        )

    @property
    def num_waiting(self) -> int:
        """Requests that hold no blocks."""
        return len(self._waiting) + len(self._requests.parked) + len(self._gate)

    @property
    def num_new_waiting(self) -> int:
        """Requests that have never run: those that ``max_waiting`` counts."""
        return self._waiting.num_new + len(self._gate)

    def num_new_waiting_of(self, tenant: str | None) -> int:
        """Of these, a tenant's."""
        return self._waiting.num_new_of(tenant) + self._gate.num_of(tenant)

    @property
    def num_held(self) -> int:
        """Of these, first requests of sessions that are held back by ``max_sessions``."""
        return len(self._gate)

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def has_work(self) -> bool:
        """Whether a step has anything to do."""
        return len(self._running) > 0 or len(self._waiting) > 0 or len(self._gate) > 0

    @property
    def most_passed_by(self) -> int:
        """The most later arrivals that were admitted before any request so far."""
        return self._waiting.most_passed_by

    def passed_by(self, request: Request) -> int:
        """How many later arrivals were admitted before a waiting request, those apart that came
        while it was held back. Cost: O(waiting)."""
        return self._waiting.passed_by(request)

    def requests(self) -> Iterator[Request]:
        """All that are not finished, without branches that have not forked off."""
        yield from self._running
        yield from self._waiting
        yield from self._requests.parked.values()
        yield from self._gate

    def submit(self, request: Request, now: float = 0.0) -> None:
        """Queue a request, and with it its branches, which fork off when its first token is
        sampled.

        Raises ValueError if it could never run, however empty the memory, and QueueFull.
        """
        most_computed = request.num_prompt_tokens + request.max_new_tokens - 1
        room = self.cache.pool.num_blocks * self.cache.block_size
        if most_computed > room:
            raise ValueError(f"{most_computed} tokens never fit in KV memory of {room} tokens")
        if request.width > self.limits.max_running:
            raise ValueError(
                f"{request.width} answers at a time are more than max_running, "
                f"{self.limits.max_running}"
            )
        taken: set[int] = set()
        for new in (request, *request.branches):
            if new.request_id in taken or self._requests.knows(new.request_id):
                raise ValueError(
                    f"request_id {new.request_id} is in use: every request needs its own"
                )
            taken.add(new.request_id)
        most = self.limits.max_waiting
        if most is not None and self.num_new_waiting >= most:
            raise QueueFull(f"{self.num_new_waiting} requests wait, the limit is {most}")
        self._requests.queue(request, now)

    def plan(self, now: float = 0.0) -> StepPlan:
        """The next step. Takes the blocks it needs: evicts, then preempts the cheapest to lose."""
        self.cache.expire()
        self._ended.forget(now)
        self._requests.let_in(now)
        self._waiting.flushed(self._running)
        self._sparing.prepare(now)
        draft = Draft(self.limits.step_tokens, self._requests.copies, ahead=self._is_ahead)
        self._requests.copies = []
        self._requests.end_late(draft, now)
        prefilling = continuing.plan_running(self._requests, draft)
        if not draft.preempted:
            if self._waiting:
                continuing.announce(self._requests, draft, prefilling)
            self._admission.admit(draft, now)
            if not draft.lacks_room:
                continuing.use_the_rest(self._requests, draft)
            if not self._is_ahead:
                make_room(self._requests, self._admission, draft, now)
        self._lacks_room = draft.lacks_room
        return draft.plan()

    def go_ahead(self, plan: StepPlan) -> bool:
        """Take a step for computed, so that the next can be planned while it is: its ``commit``
        comes after that. One step at a time.

        False, and nothing changes, where its ``commit`` must come first: branches are to fork off,
        or somebody needs room.
        """
        if self._is_ahead:
            raise RuntimeError("the step before has not been committed")
        if self._lacks_room or any(span.request.branches for span in plan.sampling):
            return False
        for span in plan.still_running.spans:
            assume(span)
        self._running.go_ahead()
        self._is_ahead = True
        return True

    @property
    def is_ahead(self) -> bool:
        """Whether a step is taken for computed, and not committed yet."""
        return self._is_ahead

    def awaits(self, request: Request) -> bool:
        """Whether what is being computed of a request counts: it has neither ended nor been sent
        back since."""
        return request.state is State.RUNNING and (request.ahead > 0 or not self._is_ahead)

    def commit(self, plan: StepPlan, tokens: Sequence[int | None]) -> list[NewToken]:
        """Record a computed step. ``tokens`` are the sampled ones, in ``plan.sampling``'s order:
        for each request one, and then one for each of its ``branches``.

        None in place of a request's first token: it is undecided. The request keeps what it holds
        and takes part in no step until `resume`; its branches need no tokens then.
        """
        sampling, spans, ahead = plan.sampling, plan.spans, self._is_ahead
        check_tokens(sampling, tokens)
        if ahead:  # without those who ended meanwhile, or were sent back
            spans = tuple([span for span in spans if span.request.ahead])
        self._running.commit(ahead=ahead)
        self._is_ahead = False
        self.counters.steps += 1
        self._record(spans)
        results: list[NewToken] = []
        left = iter(tokens)
        for span in sampling:
            token = next(left)
            request = span.request
            if token is None or (ahead and not request.ahead):
                continue
            if request.branches:
                self._take_tokens(request, token, left, results)
            else:
                settle(request, token)
                results.append(_make_token((request, token, request.finish_reason(token))))
        for span in spans if ahead else ():
            span.request.ahead = 0
        return self._finish_ended(results)

    def resume(self, request: Request, tokens: Sequence[int]) -> list[NewToken]:
        """Decide what `commit` left undecided: a token for the request, and one for each of its
        ``branches``, which may have been given to it meanwhile. Between two steps only."""
        if len(tokens) != request.width:
            raise ValueError(f"{len(tokens)} tokens came for {request.width} requests")
        self._requests.adopt(request)
        self._requests.decided(request)
        results: list[NewToken] = []
        left = iter(tokens)
        self._take_tokens(request, next(left), left, results)
        return self._finish_ended(results)

    def finish(self, request: Request) -> None:
        """End a request that has its answer; what it published stays in the tree."""
        lease = request.lease
        if self._requests.end(request):
            self.counters.requests_finished += 1
            if lease is not None:
                self._ended.add(request.request_id, lease)

    def note_tool_call(self, request_id: int) -> None:
        """The answer of a request that has just ended calls a tool, so that its branch may be
        called again soon: what an eviction rule may go by. Nothing comes of it where the request
        ended too long ago, or is told of again."""
        lease = self._ended.take(request_id)
        if lease is not None:
            self.cache.note_tool_call(lease)

    def abort(self, request: Request) -> None:
        """End a request in any state, between two steps. Again is a no-op."""
        if self._requests.end(request):
            self.counters.requests_aborted += 1

    def audit(self) -> list[str]:
        """The cache's full audit over everything that requests hold; empty when all is well."""
        return checks.audit(self.cache, list(self._running), self._waiting)

    def quarantine(self) -> list[str]:
        """Take blocks that have not exactly one owner out of use, for good; what was wrong."""
        return checks.quarantine(self.cache, list(self._running))

    def sum_problem(self) -> str | None:
        """What does not add up in the books of blocks, or None. Cost: O(running); for every
        step."""
        return checks.sum_problem(self.cache, self._running)

    # What came of a step

    def _record(self, spans: Sequence[ScheduledSpan]) -> None:
        """These have been computed; blocks that became full go to the tree."""
        size = self.cache.block_size
        for span in spans:
            request, start, count, _ = span
            if start < request.num_prompt_tokens or start < request.most_computed_tokens:
                self.counters.count_computed(span)
            end = request.num_computed_tokens = start + count
            lease = request.lease
            assert lease is not None
            if end - lease.num_tokens >= size and holding.publish(self.cache, request, end):
                self._waiting.stored(request)
        self._waiting.computed(spans)

    def _take_tokens(
        self, request: Request, token: int, left: Iterator[int | None], results: list[NewToken]
    ) -> None:
        """The request goes on with this token, its branches with the next ones."""
        going_on = [(request, token)]
        for branch in self._requests.fork(request):
            own = next(left)
            assert own is not None
            going_on.append((branch, own))
        for each, new in going_on:
            each.tokens.append(new)
            results.append(NewToken(each, new, each.finish_reason(new)))

    def _finish_ended(self, results: list[NewToken]) -> list[NewToken]:
        self.counters.generated_tokens += len(results)
        for new in results:
            if new.finish_reason is not None:
                self.finish(new.request)
        return results
