"""One simulation: the scheduler and the prefix cache that serve, on a clock and with costs of its
own in place of a model.

::

    arrivals -> scheduler.plan -> the clock moves by what the step costs -> commit -> outcomes
       ^                                                                        |
       +------------------------- a session's next request ---------------------+
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from radix_engine.cache import PrefixCache, PrefixIndex
from radix_engine.cache.flat import FlatCache
from scheduler import Counters, Limits, Request, ScheduledSpan, Scheduler, StepPlan
from workloads.simulation.arrivals import Arrival, Arrivals
from workloads.simulation.clock import SimClock
from workloads.simulation.load import Load, LoadRequest

BLOCK_SIZE = 16


class StepCost(Protocol):
    """How long steps take."""

    def of_spans(self, spans: Sequence[ScheduledSpan]) -> float:
        """Seconds of a step that computes these spans."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """What a load is served with. ``index``: tree or hash. ``context``: the most token ids of a
    prompt and its reply; None: what the memory holds."""

    cost: StepCost
    limits: Limits
    num_blocks: int
    index: str = "tree"
    eviction: str = "lru"
    block_size: int = BLOCK_SIZE
    context: int | None = None


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
    def finish_s(self) -> float | None:
        """From arrival to its end."""
        return None if self.ended_s is None else self.ended_s - self.arrived_s

    @property
    def ttft_s(self) -> float | None:
        """From arrival to the end of the step that gave the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrived_s


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation that has ended. ``outcomes`` are in the order of arrival; ``busy_s`` is what all
    steps took together, ``wall_s`` what the simulation itself took. ``outgrown_sessions``: those
    that ended since a request of theirs did not fit, and ``left_out``: their requests that were not
    served for it."""

    outcomes: tuple[Outcome, ...]
    counters: Counters
    makespan_s: float
    wall_s: float
    busy_s: float = 0.0
    outgrown_sessions: frozenset[int] = frozenset()
    left_out: int = 0

    @property
    def outgrown(self) -> int:
        """How many sessions that were."""
        return len(self.outgrown_sessions)


def simulate(
    load: Load, order: str, setup: Setup, progress: Callable[[int], object] = lambda ended: None
) -> Run:
    """Serve a load to its end. ``progress`` is told how many requests have just ended.

    A session of which a request does not fit into the memory, or the context, ends there. Raises
    ValueError for an order or an eviction rule that there is none of.
    """
    return _Simulation(load, order, setup, progress).run()


def make_cache(setup: Setup, clock: Callable[[], float]) -> PrefixIndex[Any, Any]:
    """An empty cache: the radix tree, or the flat index of block hashes."""
    if setup.index == "hash":
        return FlatCache(setup.num_blocks, setup.block_size, clock)
    return PrefixCache(setup.num_blocks, setup.block_size, clock, eviction=setup.eviction)


class _Served(NamedTuple):
    arrival: Arrival
    wanted: LoadRequest
    outcome: Outcome


class _Simulation:
    def __init__(
        self, load: Load, order: str, setup: Setup, progress: Callable[[int], object]
    ) -> None:
        self._clock = SimClock()
        cache = make_cache(setup, self._clock.read)
        self._scheduler = Scheduler(cache, setup.limits, order=order)
        room = setup.num_blocks * setup.block_size
        # The last token needs no room in the memory.
        self._most_stored = min(room, room if setup.context is None else setup.context - 1)
        self._names = [str(n) if len(s) > 1 else None for n, s in enumerate(load.sessions)]
        self._cost = setup.cost
        self._arrivals = Arrivals(load)
        self._progress = progress
        self._outcomes: list[Outcome] = []
        self._served: dict[int, _Served] = {}  # by request id, until they end
        self._not_admitted: set[int] = set()
        self._busy_s = 0.0
        self._outgrown: set[int] = set()
        self._left_out = 0

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
        return Run(
            tuple(self._outcomes),
            self._scheduler.counters,
            self._clock.now,
            wall_s,
            self._busy_s,
            frozenset(self._outgrown),
            self._left_out,
        )

    def _submit(self, arrival: Arrival) -> None:
        wanted = self._arrivals.request(arrival)
        if wanted.num_stored > self._most_stored:
            left_out = self._arrivals.given_up(arrival, self._clock.now)
            self._outgrown.add(arrival.session)
            self._left_out += left_out
            self._progress(left_out)
            return
        request = Request(
            len(self._outcomes),
            wanted.prompt,
            len(wanted.reply),
            session=self._names[arrival.session],
        )
        outcome = Outcome(arrival.session, arrival.turn, len(wanted.prompt), arrival.moment)
        self._outcomes.append(outcome)
        self._served[request.request_id] = _Served(arrival, wanted, outcome)
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
        seconds = self._cost.of_spans(plan.spans)
        self._busy_s += seconds
        self._clock.advance(seconds)
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
                tokens.append(self._served[request.request_id].wanted.reply[place])
        return tokens

    def _end(self, request: Request, reason: str) -> None:
        served = self._served.pop(request.request_id)
        self._not_admitted.discard(request.request_id)
        outcome = served.outcome
        outcome.ended_s = self._clock.now
        outcome.cached_tokens = request.cached_tokens or 0
        outcome.new_tokens = request.num_new_tokens
        outcome.end = reason
        if served.wanted.calls_tool:
            self._scheduler.note_tool_call(request.request_id)
        self._arrivals.ended(served.arrival, self._clock.now)
        self._progress(1)
