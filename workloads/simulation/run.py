"""One simulation: the scheduler and the prefix cache that serve, on a clock and with costs of its
own in place of a model.

::

    arrivals -> scheduler.plan -> the clock moves by what the step costs -> commit -> outcomes
       ^                                                                        |
       +------------------------- a session's next request ---------------------+
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from radix_engine.cache import PrefixCache, PrefixIndex
from radix_engine.cache.flat import FlatCache
from scheduler import Counters, Limits, Request, Scheduler, StepPlan
from workloads.simulation.arrivals import Arrival, Arrivals
from workloads.simulation.clock import SimClock
from workloads.simulation.cost import CostModel
from workloads.simulation.load import Load

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Setup:
    """What a load is served with. ``index``: tree or hash."""

    cost: CostModel
    limits: Limits
    num_blocks: int
    index: str = "tree"


@dataclass(slots=True)
class Outcome:
    """What became of a request; moments in seconds from the start, None for what never was."""

    session: int
    turn: int
    prompt_tokens: int
    arrived_s: float
    admitted_s: float | None = None
    first_token_s: float | None = None
    ended_s: float | None = None
    cached_tokens: int = 0
    new_tokens: int = 0
    end: str | None = None

    @property
    def wait_s(self) -> float | None:
        """From arrival to first admission."""
        return None if self.admitted_s is None else self.admitted_s - self.arrived_s

    @property
    def ttft_s(self) -> float | None:
        """From arrival to the end of the step that gave the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrived_s


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation that has ended. ``outcomes`` are in the order of arrival; ``wall_s`` is what the
    simulation itself took."""

    outcomes: tuple[Outcome, ...]
    counters: Counters
    makespan_s: float
    wall_s: float


def simulate(
    load: Load, order: str, setup: Setup, progress: Callable[[int], object] = lambda ended: None
) -> Run:
    """Serve a load to its end. ``progress`` is told how many requests have just ended.

    Raises ValueError for a request that can never run, or an order that there is none of.
    """
    return _Simulation(load, order, setup, progress).run()


def make_cache(index: str, num_blocks: int, clock: Callable[[], float]) -> PrefixIndex[Any, Any]:
    """An empty cache: the radix tree, or the flat index of block hashes."""
    if index == "hash":
        return FlatCache(num_blocks, BLOCK_SIZE, clock)
    return PrefixCache(num_blocks, BLOCK_SIZE, clock)


class _Served(NamedTuple):
    arrival: Arrival
    reply: array[int]
    outcome: Outcome


class _Simulation:
    def __init__(
        self, load: Load, order: str, setup: Setup, progress: Callable[[int], object]
    ) -> None:
        self._clock = SimClock()
        cache = make_cache(setup.index, setup.num_blocks, self._clock.read)
        self._scheduler = Scheduler(cache, setup.limits, order=order)
        self._cost = setup.cost
        self._arrivals = Arrivals(load)
        self._progress = progress
        self._outcomes: list[Outcome] = []
        self._served: dict[int, _Served] = {}  # by request id, until they end
        self._not_admitted: set[int] = set()

    def run(self) -> Run:
        started = time.perf_counter()
        while True:
            for arrival in self._arrivals.due(self._clock.now):
                self._submit(arrival)
            if self._scheduler.has_work:
                self._step()
                continue
            moment = self._arrivals.next_moment()
            if moment is None:
                break
            self._clock.advance_to(moment)
        wall_s = time.perf_counter() - started
        counters = self._scheduler.counters
        return Run(tuple(self._outcomes), counters, self._clock.now, wall_s)

    def _submit(self, arrival: Arrival) -> None:
        wanted = self._arrivals.request(arrival)
        request = Request(len(self._outcomes), wanted.prompt, len(wanted.reply))
        outcome = Outcome(arrival.session, arrival.turn, len(wanted.prompt), arrival.moment)
        self._outcomes.append(outcome)
        self._served[request.request_id] = _Served(arrival, wanted.reply, outcome)
        self._not_admitted.add(request.request_id)
        self._scheduler.submit(request, arrival.moment)

    def _step(self) -> None:
        now = self._clock.now
        plan = self._scheduler.plan(now)
        for ended in plan.ended:
            self._end(ended.request, ended.reason)
        if not plan.spans:
            if not plan.ended and not plan.preempted:
                raise RuntimeError("no request can make progress")
            return
        if self._not_admitted:
            for span in plan.spans:
                number = span.request.request_id
                if number in self._not_admitted:
                    self._not_admitted.discard(number)
                    self._served[number].outcome.admitted_s = now
        self._clock.advance(self._cost.of_spans(plan.spans))
        for new in self._scheduler.commit(plan, self._sampled(plan)):
            request = new.request
            if request.num_new_tokens == 1:
                self._served[request.request_id].outcome.first_token_s = self._clock.now
            if new.finish_reason is not None:
                self._end(request, new.finish_reason)

    def _sampled(self, plan: StepPlan) -> list[int]:
        """The next token of each request that samples: what its reply has in that place."""
        tokens = []
        for span in plan.spans:
            if span.samples:
                request = span.request
                place = span.start + span.count - request.num_prompt_tokens
                tokens.append(self._served[request.request_id].reply[place])
        return tokens

    def _end(self, request: Request, reason: str) -> None:
        served = self._served.pop(request.request_id)
        self._not_admitted.discard(request.request_id)
        outcome = served.outcome
        outcome.ended_s = self._clock.now
        outcome.cached_tokens = request.cached_tokens or 0
        outcome.new_tokens = request.num_new_tokens
        outcome.end = reason
        self._arrivals.ended(served.arrival, self._clock.now)
        self._progress(1)
