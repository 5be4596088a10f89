"""Waiting requests start: as many as the step's tokens, the blocks and the limits allow."""

from __future__ import annotations

from radix_engine.cache import MatchView
from scheduler import holding
from scheduler.budget import Limits, admission_cost, blocks_for, prefill_share
from scheduler.counters import Counters, MatchEnds
from scheduler.draft import Draft
from scheduler.holding import Cache
from scheduler.plan import RowCopy
from scheduler.queue import Candidate, WaitingQueue, match_of
from scheduler.request import Request
from scheduler.running import Running, growth
from scheduler.values import take_over

# Candidates that one step may look past because there is no room for them, or because they had
# better wait for what is being computed.
_MOST_LOOKED_PAST = 64


class Admission:
    """Takes requests from ``waiting`` to ``running``."""

    def __init__(
        self,
        cache: Cache,
        limits: Limits,
        waiting: WaitingQueue,
        running: Running,
        counters: Counters,
        match_ends: MatchEnds,
    ) -> None:
        self._cache = cache
        self._limits = limits
        self._waiting = waiting
        self._running = running
        self._counters = counters
        self._match_ends = match_ends

    def admit(self, draft: Draft, now: float) -> None:
        """Start what fits, in the queue's order; one that does not fit is looked past, unless it is
        the first, whose room must not go to others any more."""
        waiting, cache, size = self._waiting, self._cache, self._cache.block_size
        if not waiting or not draft.tokens_left:
            return
        slots = self._limits.max_running - self._running.width
        reserved = self._running.reserved_blocks()
        looked_past: list[Request] = []
        while draft.tokens_left and slots > 0 and len(looked_past) < _MOST_LOOKED_PAST:
            candidate = waiting.next(now)
            if candidate is None:
                break
            request, first, line = candidate
            needed = self._blocks_needed(request)
            room = cache.available_blocks - reserved  # the running ones still get theirs
            if first:
                match = match_of(request, cache)
            else:
                # An upper bound: what does not fit even so need not be looked up.
                believed = line.trie.cached_tokens(request)
                if admission_cost(needed, believed // size, 0) > room:
                    looked_past.append(request)
                    continue
                match = match_of(request, cache)
                if not waiting.settle(candidate, believed, match):
                    waiting.put_back(request)
                    continue
                if line.trie.blocked(request):
                    # Better wait for what a running request computes than compute it twice.
                    looked_past.append(request)
                    continue
            pinned = cache.unpinned_blocks(match)
            cost = admission_cost(needed, match.num_tokens // size, pinned)
            if request.width > slots or cost > room:
                looked_past.append(request)
                if first:
                    break
                continue
            self._start(candidate, match, draft, now, others_wait=bool(waiting or looked_past))
            slots -= request.width
            reserved += growth(request, size)
        for request in looked_past:
            waiting.put_back(request)

    def _blocks_needed(self, request: Request) -> int:
        """For all its tokens, and the tails of its branches. Alone it starts in any case: a branch
        without room for its tail waits."""
        tails = len(request.branches) if len(self._running) else 0
        return blocks_for(len(request.tokens), self._cache.block_size) + tails

    def _start(
        self,
        candidate: Candidate,
        match: MatchView,
        draft: Draft,
        now: float,
        *,
        others_wait: bool,
    ) -> None:
        request, cache = candidate.request, self._cache
        first_time = request.cached_tokens is None
        if first_time:
            request.match_end = cache.account(match, request.run)
            request.admitted_s = now
            missed = request.num_prompt_tokens - match.num_tokens
            self._match_ends.count(request.match_end, missed)
        take_over(match, request, cache)
        request.lease = cache.lease(match, request.priority)
        request.match = request.near = None
        request.block_table = request.lease.blocks()
        request.num_computed_tokens = match.num_tokens
        self._counters.count_admission(request, match.num_tokens)
        if first_time:
            request.cached_tokens = match.num_tokens
        request.most_computed_tokens = max(request.most_computed_tokens, match.num_tokens)
        self._waiting.started(candidate)
        self._running.add(request)
        held = len(request.block_table)
        share = prefill_share(draft.tokens_left, others_wait=others_wait)
        count = min(request.remaining_tokens, max(1, share))
        end = match.num_tokens + count
        if not holding.extend(cache, request, end):
            raise RuntimeError(f"request {request.request_id} was admitted without room")
        if match.copy_rows:
            target = request.block_table[held]
            draft.copies.append(RowCopy(match.copy_source, target, match.copy_rows))
        draft.give(request, count)
        if others_wait and self._running.announce(request, end):
            self._waiting.stored(request)
