"""Steps that are planned while the one before is computed, and what may go wrong with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler import Request, State, StepPlan
from tests.checking_model import Bench, WrongMemory
from tests.scheduler.late_device import Device


@dataclass(frozen=True)
class Mishap:
    """What goes wrong with a step. ``not_numbers``: whose logits are none, and with ``rows`` what
    they write is none either. ``fails``: nothing comes of it."""

    not_numbers: frozenset[Request] = frozenset()
    rows: bool = True
    fails: bool = False


FINE = Mishap()


@dataclass
class LookAheadBench(Bench):
    """A bench whose steps are planned one ahead wherever that may be.

    ``failed``: those whose step failed, or whose logits were no numbers. ``undecided``: those whose
    token is there, and not decided.
    """

    failed: set[Request] = field(default_factory=set)
    undecided: dict[Request, int] = field(default_factory=dict)
    ended: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.device = Device(self)
        self.flying: StepPlan | None = None
        self.gone_ahead = 0
        self.computed_tokens = 0
        self._flushes: dict[Request, tuple[Any, int]] = {}  # by request: its lease, and before it

    def step(
        self,
        abort: Sequence[Request] = (),
        abort_later: Sequence[Request] = (),
        *,
        fly: bool = True,
        before: Mishap = FINE,
        this: Mishap = FINE,
        leave: Collection[Request] = (),
    ) -> StepPlan:
        """Plan and launch a step, then commit the one before; ``abort`` are ended after planning,
        ``abort_later`` between the two steps.

        ``fly`` False: the one before is committed before this one is computed. ``before`` happens
        to the one before, and ``this`` to this one, where that is computed already. Of a step that
        does not fly, the tokens of ``leave`` stay undecided.
        """
        scheduler = self.scheduler
        plan = self._plan()
        self._check()
        assert plan.num_tokens <= self.limits.step_tokens
        assert self.flying or plan.spans or plan.ended or plan.preempted or not scheduler.has_work
        for request in abort:
            scheduler.abort(request)
        plan = plan.still_running
        self.results = []
        if fly and plan.spans:
            self._launch(plan)
        elif plan.copies:
            self._launch(StepPlan((), copies=plan.copies))
        if self.flying is not None:
            flight, self.flying = self.flying, None
            self._land(flight, before)
        for request in abort_later:
            scheduler.abort(request)
        self._check()
        if not plan.spans:
            return plan
        if not fly:
            return self._compute(StepPlan(plan.still_running.spans), this, leave)
        if scheduler.go_ahead(plan):
            self.flying = plan
            self.gone_ahead += 1
        else:
            self._land(plan, this)
        self._check()
        return plan

    def fail_launch(self) -> StepPlan:
        """A step that cannot be launched: those that were to take part in it end."""
        plan = self._plan().still_running
        if plan.copies:
            self._launch(StepPlan((), copies=plan.copies))
        self._fail([span.request for span in plan.spans])
        self._check()
        return plan

    def decide(self) -> None:
        """Those whose token is undecided go on with it."""
        undecided, self.undecided = self.undecided, {}
        for request, token in undecided.items():
            if request.state is not State.FINISHED:
                self.results += self.scheduler.resume(request, [token] * request.width)
                self._forked()
                self._check()

    def _plan(self) -> StepPlan:
        flying = () if self.flying is None else self.flying.sampling
        awaited = {s.request: s.request.preemptions for s in flying if s.request.ahead}
        plan = self.scheduler.plan(self.now)
        for request, _ in plan.ended:  # with the token in flight, unless it was sent back before
            assert awaited.get(request) != request.preemptions
        self.ended += [request for request, _ in plan.ended]
        self._admitted(plan)
        return plan

    def _compute(self, plan: StepPlan, mishap: Mishap, leave: Collection[Request]) -> StepPlan:
        """As on a CPU, with nothing in flight."""
        if plan.spans:
            self._launch(plan)
            self._land(plan, mishap, leave)
        self._check()
        return plan

    def _launch(self, plan: StepPlan) -> None:
        flushes = {request: before for request, (_, before) in self._flushes.items()}
        self.device.launch(plan, flushes, self.cache.counters.flushes)

    def _land(self, plan: StepPlan, mishap: Mishap, leave: Collection[Request] = ()) -> None:
        """What the engine does when a step has been computed."""
        scheduler = self.scheduler
        while self.device.launched[0].plan is not plan:
            self.device.land()  # copies, for which nobody waits
        landed = self.device.land(mishap.not_numbers if mishap.rows else (), fails=mishap.fails)
        self.computed_tokens += plan.num_tokens
        if mishap.fails:
            self._fail([span.request for span in plan.spans])
            if scheduler.is_ahead:
                scheduler.commit(StepPlan(()), [])
            self._check()
            return
        for request, lease in landed.leases.items():  # it may have been sent back and started again
            counts = request.state is State.RUNNING and request.lease is lease
            assert scheduler.awaits(request) == counts
        broken = landed.spoiled | mishap.not_numbers
        awaited = [span.request for span in plan.sampling if scheduler.awaits(span.request)]
        self._fail([request for request in awaited if request in broken])
        left = plan.still_running
        for span in left.spans:
            if span.request in landed.spoiled and scheduler.awaits(span.request):
                raise WrongMemory(f"request {span.request.request_id} goes on with no numbers")
        tokens: list[int | None] = []
        for span in left.sampling:
            token = landed.tokens[span.request]
            if span.request in leave:
                self.undecided[span.request] = token
                tokens.append(None)
            else:
                tokens += [token] * span.request.width
        self.results += scheduler.commit(left, tokens)
        self._forked()
        self._check()

    def _fail(self, requests: Sequence[Request]) -> None:
        for request in requests:
            for each in (*reversed(request.branches), request):
                self.failed.add(each)
                self.scheduler.abort(each)

    def _admitted(self, plan: StepPlan) -> None:
        for span in plan.spans:
            known = self._flushes.get(span.request)
            if known is None or known[0] is not span.request.lease:
                self._flushes[span.request] = span.request.lease, self.cache.counters.flushes

    def _forked(self) -> None:
        """Branches go on with what their parents hold, whatever was emptied since."""
        for request in self.scheduler.requests():
            known = self._flushes.get(request)
            if request.lease is not None and (known is None or known[0] is not request.lease):
                self._flushes[request] = request.lease, 0

    def _check(self) -> None:
        assert self.scheduler.audit() == []
        assert self.scheduler.sum_problem() is None
        assert self.scheduler.num_running <= self.limits.max_running
        assert self.scheduler.most_passed_by <= self.limits.max_passed_by
