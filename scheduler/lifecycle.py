"""How requests come and go: queued, forked, preempted, ended. What a change of state entails.

::

                      +---------------- preempt ---------------+
                      v                                        |
    submit -gate-> WAITING --admission: start------------> RUNNING --> FINISHED
      |               ^                                        ^
      +--> BRANCH ----+--- fork, without room | with room -----+

The gate may hold a new session's first request back for a while; it is WAITING then, too. A
request whose next token is undecided is PARKED when it is preempted, until it is decided.
"""

from __future__ import annotations

from scheduler.ahead import end_with_flight, take_back
from scheduler.counters import Counters
from scheduler.deadlines import Deadlines
from scheduler.draft import Draft
from scheduler.forking import fork, go_on_like
from scheduler.gate import Gate
from scheduler.holding import Cache
from scheduler.plan import Ended, RowCopy
from scheduler.queue import WaitingQueue
from scheduler.request import Request, State
from scheduler.running import Running


class Lifecycle:
    """The requests of a scheduler. ``copies``: rows that the next step begins by copying."""

    def __init__(
        self,
        cache: Cache,
        waiting: WaitingQueue,
        running: Running,
        counters: Counters,
        max_running: int,
        gate: Gate,
    ) -> None:
        self.cache = cache
        self._gate = gate
        self._max_running = max_running
        self.waiting = waiting
        self.running = running
        self.copies: list[RowCopy] = []
        self._counters = counters
        self._deadlines = Deadlines()
        self._parents: dict[int, Request] = {}  # of branches that have not forked off yet
        self.parked: dict[int, Request] = {}

    def knows(self, request_id: int) -> bool:
        """Whether a request of this id has not ended."""
        return (
            request_id in self.running
            or request_id in self.waiting
            or request_id in self._parents
            or request_id in self.parked
            or request_id in self._gate
        )

    def queue(self, request: Request, now: float) -> None:
        """A new request waits, and its branches for it."""
        request.arrived_s = now
        for each in self._gate.arrives(request, now):
            self.waiting.add(each)
        self._deadlines.add(request)
        self.adopt(request)

    def let_in(self, now: float) -> None:
        """Queue those that were held back, and need not be any more."""
        idle = not len(self.running) and not len(self.waiting)
        for request in self._gate.let_in(now, idle=idle):
            self.waiting.add(request)

    def adopt(self, parent: Request) -> None:
        """The branches of a request, which may be new, wait for it."""
        for branch in parent.branches:
            branch.state = State.BRANCH
            branch.payload = parent.payload  # of the same tokens, until they fork off
            self._parents[branch.request_id] = parent
            self._deadlines.add(branch)

    def end_late(self, draft: Draft, now: float) -> None:
        """End those whose deadline has come; whose token is being sampled, with that token."""
        for request in list(self._deadlines.passed(now)):
            if end_with_flight(request):
                self._deadlines.add(request)  # it may be sent back before the token is there
            else:
                self.give_up(draft, request, "deadline")

    def give_up(self, draft: Draft, request: Request, reason: str) -> None:
        """End a request that will not be computed; the plan says so."""
        if self.end(request):
            self._counters.requests_aborted += 1
            draft.ended.append(Ended(request, reason))

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks back; it waits again, before later arrivals.

        What it published stays in the tree until it is evicted, so it may well find that again.
        """
        take_back(request)
        undecided = not request.remaining_tokens
        sent_back = self.running.let_go(request)
        request.most_computed_tokens = max(
            request.most_computed_tokens, request.num_computed_tokens
        )
        request.num_computed_tokens = 0
        self.waiting.left_running(request)
        self._wait_again(request, parked=undecided)
        self._preempt_all(sent_back)

    def fork(self, parent: Request) -> list[Request]:
        """Its branches hold what the parent has computed, or wait for room to compute it again."""
        branches, parent.branches = parent.branches, []
        for branch in branches:
            self._parents.pop(branch.request_id, None)
            go_on_like(parent, branch)
            copies = None
            # Branches that were given to it later have had no place kept for them.
            if parent.lease is not None and self.running.width < self._max_running:
                copies = fork(self.cache, parent, branch)
            if copies is None:
                self._wait_again(branch)
            else:
                self.copies.extend(copies)
                self.running.add(branch)
                self.waiting.forked(branch)
        return branches

    def decided(self, request: Request) -> None:
        """What was undecided is known: a parked request waits for room again."""
        if self.parked.pop(request.request_id, None) is not None:
            request.state = State.WAITING
            self.waiting.add(request)

    def end(self, request: Request) -> bool:
        """End a request in any state; False where it had ended before."""
        if request.state is State.FINISHED:
            return False
        take_back(request)
        request.state, before = State.FINISHED, request.state
        self._deadlines.ended(request)
        if before is State.BRANCH:
            self._parents.pop(request.request_id).branches.remove(request)
            return True
        was_held = self._gate.ended(request)
        if before is State.PARKED:
            del self.parked[request.request_id]
        elif not was_held:
            self.waiting.ended(request)
        if before is State.RUNNING:
            self._preempt_all(self.running.let_go(request))
        self._pass_on(request)
        return True

    def _wait_again(self, request: Request, *, parked: bool = False) -> None:
        request.preemptions += 1
        self._counters.preemptions += 1
        if parked:
            request.state = State.PARKED
            self.parked[request.request_id] = request
        else:
            request.state = State.WAITING
            self.waiting.add(request)

    def _preempt_all(self, requests: list[Request]) -> None:
        for request in requests:
            if request.state is State.RUNNING:
                self.preempt(request)

    def _pass_on(self, parent: Request) -> None:
        """The branches of a request that ended before they forked off go on without it."""
        branches, parent.branches = parent.branches, []
        if not branches:
            return
        heir, heir.branches = branches[0], branches[1:]
        del self._parents[heir.request_id]
        heir.state = State.WAITING
        heir.arrived_s = parent.arrived_s
        for branch in heir.branches:
            self._parents[branch.request_id] = heir
        self.waiting.add(heir)
