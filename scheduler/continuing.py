"""The running requests' part of a step: a token for everyone who decodes, then prompts."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler import holding
from scheduler.budget import prefill_share
from scheduler.draft import Draft
from scheduler.lifecycle import Lifecycle
from scheduler.preemption import cheapest_to_lose
from scheduler.request import Request, State


def plan_running(requests: Lifecycle, draft: Draft) -> list[Request]:
    """Spans for the running: those that need one token, then prompts with what is left, in the
    order of admission. Preempts where blocks run out.

    Returns the prompts that got some.
    """
    size, running, give_one = requests.cache.block_size, State.RUNNING, draft.give_one
    prefilling: list[Request] = []
    for request in list(requests.running):
        tokens = len(request.tokens)
        remaining = tokens - request.num_computed_tokens
        if remaining > 1:
            prefilling.append(request)
        elif not remaining or request.state is not running:
            continue  # its token is undecided; or it was preempted for one before it
        elif tokens <= len(request.block_table) * size or _take_blocks(requests, request, 1, draft):
            give_one(request)
    planned = []
    for request in prefilling:
        if request.state is not State.RUNNING:
            continue
        if not draft.tokens_left:
            break
        others_wait = len(requests.waiting) > 0 or request is not prefilling[-1]
        share = prefill_share(draft.tokens_left, others_wait=others_wait)
        count = min(request.remaining_tokens, share)
        if count and _take_blocks(requests, request, count, draft):
            draft.give(request, count)
            planned.append(request)
    return [request for request in planned if request.state is State.RUNNING]


def announce(requests: Lifecycle, draft: Draft, prefilling: Iterable[Request]) -> None:
    """Let waiting requests attach to what the step computes of these."""
    for request in prefilling:
        end = request.num_computed_tokens + draft.spans[request.request_id].count
        if requests.running.announce(request, end):
            requests.waiting.stored(request)


def use_the_rest(requests: Lifecycle, draft: Draft) -> None:
    """Give prompts what was kept for waiting requests and taken by none of them."""
    if not draft.tokens_left:
        return
    for request, start, count, samples in list(draft.spans.values()):
        if samples:
            continue
        more = min(len(request.tokens) - start - count, draft.tokens_left)
        if more > 0 and holding.extend(requests.cache, request, start + count + more):
            draft.give(request, count + more)


def _take_blocks(requests: Lifecycle, request: Request, count: int, draft: Draft) -> bool:
    """Make room for ``count`` more tokens, preempting others if it must.

    False when the request itself was preempted, or ended, or has to sit out.
    """
    cache = requests.cache
    while not holding.extend(cache, request, request.num_computed_tokens + count):
        if draft.ahead:
            draft.lacks_room = True
            return False
        victim = cheapest_to_lose(
            requests.running, lambda other: holding.lost_if_preempted(cache, other)
        )
        if victim is None:
            requests.give_up(draft, request, "memory")
            return False
        draft.take_back(victim)
        draft.preempted.append(victim)
        requests.preempt(victim)
        if victim is request:
            return False
    return True
