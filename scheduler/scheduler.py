"""Continuous batching: each step gives every running request some tokens and admits waiting ones.

    submit -> waiting --plan: match, lease, allocate, announce--> running --commit--> finished
                 ^                                                   |
                 +------------------ preempt: release ---------------+

``plan`` decides and takes blocks; the caller computes the plan; ``commit`` records what was
computed, publishes full blocks and ends requests. Between the two only ``abort`` may be called,
which may send others back that stand on what the aborted one was to compute: commit what is
``still_running``. One thread; no tensor; no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from radix_engine.cache import MatchView, PrefixIndex
from scheduler.budget import (
    AdmissionCost,
    Limits,
    blocks_for,
    blocks_missing,
    fits,
    prefill_share,
)
from scheduler.counters import Counters
from scheduler.plan import NewToken, RowCopy, ScheduledSpan, StepPlan
from scheduler.queue import WaitingQueue, match_of, matched_tokens
from scheduler.request import Request, State


class Scheduler:
    """Plans steps over one prefix cache within ``limits``."""

    def __init__(self, cache: PrefixIndex[Any, Any], limits: Limits) -> None:
        self.cache = cache
        self.limits = limits
        self.counters = Counters()
        self._waiting = WaitingQueue(limits.max_passed_by)
        self._running: dict[int, Request] = {}  # in order of admission
        self._announced: set[int] = set()  # requests with blocks in flight

    @property
    def num_waiting(self) -> int:
        """Requests that hold no blocks."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def has_work(self) -> bool:
        """Whether a step has anything to do."""
        return bool(self._running) or len(self._waiting) > 0

    def requests(self) -> Iterator[Request]:
        """All that are not finished."""
        yield from self._running.values()
        yield from self._waiting

    def submit(self, request: Request) -> None:
        """Queue a request. Raises ValueError if it could never run, however empty the memory."""
        most_computed = request.num_prompt_tokens + request.max_new_tokens - 1
        room = self.cache.pool.num_blocks * self.cache.block_size
        if most_computed > room:
            raise ValueError(f"{most_computed} tokens never fit in KV memory of {room} tokens")
        if request.request_id in self._running or request.request_id in self._waiting:
            raise ValueError(
                f"request_id {request.request_id} is in use: every request needs its own"
            )
        self._waiting.add(request)

    def plan(self) -> StepPlan:
        """The next step. Takes the blocks it needs: evicts, then preempts whoever came last."""
        self.cache.expire()
        spans: dict[int, ScheduledSpan] = {}
        copies: list[RowCopy] = []
        preempted = self._plan_running(spans)
        if not preempted:
            if self._waiting:
                for span in list(spans.values()):
                    self._announce(span)
            self._admit(spans, copies)
            self._use_the_rest(spans)
        return StepPlan(tuple(spans.values()), tuple(preempted), tuple(copies))

    def commit(self, plan: StepPlan, tokens: Sequence[int]) -> list[NewToken]:
        """Record a computed step; ``tokens`` are the sampled ones, in ``plan.sampling``'s order."""
        sampling = plan.sampling
        if len(tokens) != len(sampling):
            raise ValueError(f"{len(sampling)} requests wait for a token, {len(tokens)} came")
        self.counters.steps += 1
        for span in plan.spans:
            self.cache.commit(span.request.lease)
        self._announced.clear()
        for span in plan.spans:
            self.counters.count_computed(span)
            span.request.num_computed_tokens = span.start + span.count
            self._publish(span.request)
        results = []
        for span, token in zip(sampling, tokens, strict=True):
            request = span.request
            request.tokens.append(token)
            self.counters.generated_tokens += 1
            reason = _finish_reason(request, token)
            if reason is not None:
                self.finish(request)
            results.append(NewToken(request, token, reason))
        return results

    def finish(self, request: Request) -> None:
        """End a request that has its answer; what it published stays in the tree."""
        if self._end(request):
            self.counters.requests_finished += 1

    def abort(self, request: Request) -> None:
        """End a request in any state, between two steps. Again is a no-op."""
        if self._end(request):
            self.counters.requests_aborted += 1

    def audit(self) -> list[str]:
        """The cache's full audit over everything that requests hold; empty when all is well."""
        size = self.cache.block_size
        holders = list(self._running.values())
        private = [request.private_tail(size) for request in holders]
        leases = [request.lease for request in holders if request.lease is not None]
        problems = self.cache.audit(private, leases)
        for request in self._waiting:
            if request.lease is not None or request.block_table:
                problems.append(f"request {request.request_id} waits and holds blocks")
        return problems

    def quarantine(self) -> list[str]:
        """Take blocks that have not exactly one owner out of use, for good; what was wrong."""
        size = self.cache.block_size
        return self.cache.quarantine([r.private_tail(size) for r in self._running.values()])

    def sum_problem(self) -> str | None:
        """What does not add up in the books of blocks, or None. Cost: O(running); for every
        step."""
        size, pool = self.cache.block_size, self.cache.pool
        tails = 0
        for request in self._running.values():
            leased = 0 if request.lease is None else request.lease.num_tokens // size
            tails += len(request.block_table) - leased
        if tails != pool.private_blocks:
            return f"requests hold {tails} private blocks, the books say {pool.private_blocks}"
        return pool.sum_problem()

    # Running requests

    def _plan_running(self, spans: dict[int, ScheduledSpan]) -> list[Request]:
        """Spans for the running: those that need one token, then prompts with what is left."""
        preempted: list[Request] = []
        tokens_left = self.limits.max_step_tokens
        decoding = [r for r in self._running.values() if r.remaining_tokens == 1]
        prefilling = [r for r in self._running.values() if r.remaining_tokens > 1]
        for request in decoding + prefilling:
            if tokens_left == 0:
                break
            if request.state is not State.RUNNING:
                continue  # preempted for one before it
            count = request.remaining_tokens
            if count > 1:
                others_wait = len(self._waiting) > 0 or request is not prefilling[-1]
                share = prefill_share(tokens_left, others_wait=others_wait)
                count = min(count, share)
            if self._take_blocks(request, count, spans, preempted):
                spans[request.request_id] = _span(request, count)
                tokens_left = self.limits.max_step_tokens - _tokens(spans)
        return preempted

    def _take_blocks(
        self,
        request: Request,
        count: int,
        spans: dict[int, ScheduledSpan],
        preempted: list[Request],
    ) -> bool:
        """Make room for ``count`` more tokens, preempting the last admitted if it must.

        False when the request itself was the last.
        """
        while not self._extend(request, count):
            victim = next(reversed(self._running.values()))
            spans.pop(victim.request_id, None)
            self._preempt(victim)
            preempted.append(victim)
            if victim is request:
                return False
        return True

    def _extend(self, request: Request, count: int) -> bool:
        """Make the block table cover ``count`` more tokens, if enough blocks are available."""
        end = request.num_computed_tokens + count
        missing = blocks_missing(end, len(request.block_table), self.cache.block_size)
        blocks = self.cache.allocate(missing)
        if blocks is None:
            return False
        request.block_table.extend(blocks)
        return True

    def _preempt(self, request: Request) -> None:
        """Take a running request's blocks back; it waits again, before later arrivals.

        What it published stays in the tree until it is evicted, so it may well find that again.
        """
        self._let_go(request)
        request.most_computed_tokens = max(
            request.most_computed_tokens, request.num_computed_tokens
        )
        request.num_computed_tokens = 0
        request.preemptions += 1
        request.state = State.WAITING
        self.counters.preemptions += 1
        self._waiting.add(request)

    # Waiting requests

    def _admit(self, spans: dict[int, ScheduledSpan], copies: list[RowCopy]) -> None:
        tokens_left = self.limits.max_step_tokens - _tokens(spans)
        if not self._waiting or tokens_left == 0 or self.num_running >= self.limits.max_running:
            return
        reserved = sum(self._growth(running) for running in self._running.values())
        for request in self._waiting.in_order(self.cache):
            if tokens_left == 0 or self.num_running >= self.limits.max_running:
                return
            first = self._waiting.goes_first(request)
            if not first and self._computed_by_another(request):
                continue
            if not self._fits(request, reserved):
                if first:
                    return  # its room must not go to others any more
                continue
            share = prefill_share(tokens_left, others_wait=len(self._waiting) > 1)
            match = self._start(request)
            held = len(request.block_table)
            count = min(request.remaining_tokens, max(1, share))
            if not self._extend(request, count):
                raise RuntimeError(f"request {request.request_id} was admitted without room")
            if match.copy_rows:
                target = request.block_table[held]
                copies.append(RowCopy(match.copy_source, target, match.copy_rows))
            reserved += self._growth(request)
            spans[request.request_id] = _span(request, count)
            if self._waiting:
                self._announce(spans[request.request_id])
            tokens_left = self.limits.max_step_tokens - _tokens(spans)
            if not first and any(self._waiting.goes_first(waiting) for waiting in self._waiting):
                return  # one has been passed as often as it may be: the next step begins with it

    def _use_the_rest(self, spans: dict[int, ScheduledSpan]) -> None:
        """Give prompts what was kept for waiting requests and taken by none of them."""
        tokens_left = self.limits.max_step_tokens - _tokens(spans)
        for span in list(spans.values()):
            request = span.request
            more = min(request.remaining_tokens - span.count, tokens_left)
            if more > 0 and self._extend(request, span.count + more):
                spans[request.request_id] = _span(request, span.count + more)
                tokens_left -= more

    def _fits(self, request: Request, reserved: int) -> bool:
        size = self.cache.block_size
        match = match_of(request, self.cache)
        pinned = self.cache.unpinned_blocks(match)
        cost = AdmissionCost(
            blocks_for(len(request.tokens), size), match.num_tokens // size, pinned
        )
        return fits(cost, self.cache.available_blocks, reserved)

    def _growth(self, request: Request) -> int:
        """Blocks kept for a running request: the rest of its tokens, and the next block."""
        size = self.cache.block_size
        return blocks_missing(len(request.tokens) + size, len(request.block_table), size)

    def _start(self, request: Request) -> MatchView:
        match = match_of(request, self.cache)
        first_time = request.cached_tokens is None
        if first_time:
            request.match_end = self.cache.account(match, request.tokens.tobytes())
        request.lease = self.cache.lease(match)
        request.match = None
        request.block_table = request.lease.blocks()
        request.num_computed_tokens = match.num_tokens
        self.counters.count_admission(request, match.num_tokens)
        if first_time:
            request.cached_tokens = match.num_tokens
        request.most_computed_tokens = max(request.most_computed_tokens, match.num_tokens)
        self._waiting.admitted(request)
        request.state = State.RUNNING
        self._running[request.request_id] = request
        return match

    def _computed_by_another(self, request: Request) -> bool:
        """Whether a running request is about to compute the next block of this one's prompt.

        Then it is better to wait for that block than to compute it twice.
        """
        if not request.mode.reads:
            return False
        size = self.cache.block_size
        end = matched_tokens(request, self.cache) // size * size + size
        if end >= len(request.tokens):
            return False
        head = request.tokens[:end]
        return any(
            running.mode.stores
            and running.num_computed_tokens < end <= running.num_prompt_tokens
            and running.namespace == request.namespace
            and running.tokens[:end] == head
            for running in self._running.values()
        )

    def _announce(self, span: ScheduledSpan) -> None:
        """Let waiting requests attach, in this very step, to the blocks that it will fill."""
        request, lease = span.request, span.request.lease
        assert lease is not None
        size = self.cache.block_size
        start, end = lease.num_tokens, (span.start + span.count) // size * size
        if span.count == 1 or start >= end or not request.mode.stores:
            return
        run = request.tokens[start:end].tobytes()
        if self.cache.announce(lease, run, request.block_table[start // size : end // size]):
            self._announced.add(request.request_id)

    # Shared by all ways

    def _publish(self, request: Request) -> None:
        lease = request.lease
        assert lease is not None
        size = self.cache.block_size
        start, end = lease.num_tokens, request.num_computed_tokens // size * size
        if not request.mode.stores or start == end:
            return
        first = start // size
        run = request.tokens[start:end].tobytes()
        table = self.cache.publish(lease, run, request.block_table[first : end // size])
        request.block_table[first : first + len(table)] = table

    def _end(self, request: Request) -> bool:
        if request.state is State.FINISHED:
            return False
        self._waiting.discard(request)
        self._let_go(request)
        request.state = State.FINISHED
        return True

    def _let_go(self, request: Request) -> None:
        """Give back all that a request holds."""
        self._running.pop(request.request_id, None)
        lease, tail = request.lease, request.private_tail(self.cache.block_size)
        request.lease, request.block_table = None, request.block_table[:0]
        if lease is not None:
            try:
                self.cache.free(tail)
            finally:
                self.cache.release(lease)
        if request.request_id in self._announced:
            self._announced.discard(request.request_id)
            self._send_back_broken()

    def _send_back_broken(self) -> None:
        """Requests that stand on blocks that will not be computed start again."""
        for request in list(self._running.values()):
            if request.state is State.RUNNING and self.cache.is_broken(request.lease):
                self._preempt(request)


def _span(request: Request, count: int) -> ScheduledSpan:
    return ScheduledSpan(request, request.num_computed_tokens, count)


def _tokens(spans: dict[int, ScheduledSpan]) -> int:
    return sum(span.count for span in spans.values())


def _finish_reason(request: Request, token: int) -> str | None:
    if token in request.stop_token_ids:
        return "stop"
    if request.num_new_tokens >= request.max_new_tokens:
        return "length"
    return None
