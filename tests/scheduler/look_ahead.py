"""Steps that are planned while the one before is computed, on a device as late as can be.

What a step needs of the host is taken when it is launched: tokens, block tables, copies. It is
computed only when its tokens are asked for, after the next one was launched and whatever that
planning freed or gave to others. Blocks that are freed are spoiled when the step that is launched
next begins.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from radix_engine.cache.block_pool import IN_FLIGHT, PRIVATE
from scheduler import Request, ScheduledSpan, StepPlan
from tests.checking_model import POISON, Bench, WrongMemory, next_token, prefix_hashes


@dataclass(frozen=True)
class Launched:
    """A step as the device got it. ``guessed``: whose last token is the one it sampled before."""

    plan: StepPlan
    tokens: dict[Request, array[int]]
    tables: dict[Request, array[int]]
    guessed: frozenset[Request]
    freed: frozenset[int]


class Device:
    """Computes what was launched, in turn. ``sampled``: each request's newest token."""

    def __init__(self, bench: Bench) -> None:
        self.pool = bench.model.pool
        self.rows = bench.model.rows
        self.size = bench.block_size
        self.launched: list[Launched] = []
        self.sampled: dict[Request, int] = {}

    def launch(self, plan: StepPlan) -> None:
        """Take a step. Raises WrongMemory where it would write blocks that are not its own."""
        writers: set[int] = set()
        for span in plan.spans:
            for block in self._written(span, span.request.block_table):
                if self.pool.owner_of(block) not in (PRIVATE, IN_FLIGHT) or block in writers:
                    raise WrongMemory(f"request {span.request.request_id} writes block {block}")
                writers.add(block)
        requests = [span.request for span in plan.spans]
        self.launched.append(
            Launched(
                plan,
                {request: request.tokens[:] for request in requests},
                {request: request.block_table[:] for request in requests},
                frozenset(request for request in requests if request.is_guessed),
                frozenset(self.pool.freed),
            )
        )
        self.pool.freed.clear()

    def land(self) -> dict[Request, int]:
        """Compute the oldest step that was launched; the tokens of those who sample."""
        step = self.launched.pop(0)
        self._begin(step)
        hashes = {}
        for span in step.plan.spans:
            tokens = step.tokens[span.request]
            if span.request in step.guessed:
                tokens[-1] = self.sampled[span.request]
            hashes[span.request] = prefix_hashes(tokens[: span.start + span.count])
            for position in range(span.start, span.start + span.count):
                block = step.tables[span.request][position // self.size]
                self.rows[block][position % self.size] = hashes[span.request][position]
        for span in step.plan.spans:
            for position, expected in enumerate(hashes[span.request]):
                block = step.tables[span.request][position // self.size]
                found = self.rows[block][position % self.size]
                if found != expected:
                    what = "freed or never written" if found == POISON else "another prefix's"
                    raise WrongMemory(
                        f"request {span.request.request_id} reads {what} at {position}"
                    )
        tokens_of = {
            span.request: next_token(hashes[span.request][-1]) for span in step.plan.sampling
        }
        self.sampled.update(tokens_of)
        return tokens_of

    def _begin(self, step: Launched) -> None:
        copied = [(copy, self.rows[copy.source][: copy.rows]) for copy in step.plan.copies]
        for block in step.freed:
            self.rows[block][:] = [POISON] * self.size
        for copy, rows in copied:
            if POISON in rows:
                raise WrongMemory(f"rows of block {copy.source} are copied, and never were written")
            self.rows[copy.target][: copy.rows] = rows

    def _written(self, span: ScheduledSpan, table: array[int]) -> array[int]:
        end = span.start + span.count
        return table[span.start // self.size : (end - 1) // self.size + 1]


@dataclass
class LookAheadBench(Bench):
    """A bench whose steps are planned one ahead wherever that may be."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.device = Device(self)
        self.flying: StepPlan | None = None
        self.gone_ahead = 0
        self.computed_tokens = 0

    def step(self, abort: Sequence[Request] = (), abort_later: Sequence[Request] = ()) -> StepPlan:
        """Plan and launch a step, then commit the one before; ``abort`` are ended after planning,
        ``abort_later`` between the two steps."""
        scheduler = self.scheduler
        plan = scheduler.plan(self.now)
        self._check()
        assert plan.num_tokens <= self.limits.step_tokens
        assert self.flying or plan.spans or plan.ended or not scheduler.has_work
        for request in abort:
            scheduler.abort(request)
        plan = plan.still_running
        if plan.spans or plan.copies:
            self.device.launch(plan)
        self.results = []
        if self.flying is not None:
            before = self.flying
            self.flying = None
            self._commit(before)
        for request in abort_later:
            scheduler.abort(request)
        self._check()
        if not (plan.spans or plan.copies):
            return plan
        if scheduler.go_ahead(plan):
            self.flying = plan
            self.gone_ahead += 1
        else:
            self._commit(plan)
        self._check()
        return plan

    def _commit(self, plan: StepPlan) -> None:
        tokens_of = self.device.land()
        self.computed_tokens += plan.num_tokens
        left = plan.still_running
        tokens = [t for s in left.sampling for t in [tokens_of[s.request]] * s.request.width]
        self.results += self.scheduler.commit(left, tokens)
        self._check()

    def _check(self) -> None:
        assert self.scheduler.audit() == []
        assert self.scheduler.sum_problem() is None
        assert self.scheduler.num_running <= self.limits.max_running
