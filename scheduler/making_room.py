"""Where nobody gets on because undecided requests hold all the room."""

from __future__ import annotations

from scheduler import holding
from scheduler.admission import Admission
from scheduler.draft import Draft
from scheduler.lifecycle import Lifecycle


def make_room(requests: Lifecycle, admission: Admission, draft: Draft, now: float) -> None:
    """Let undecided requests give their room back, the cheapest to lose first, until somebody is
    admitted. With nobody running the first in the queue must fit, or never will."""
    waiting, running = requests.waiting, requests.running
    while waiting and len(running) and not (draft.spans or draft.ended):
        victim = min(
            running, key=lambda request: holding.lost_if_preempted(requests.cache, request)
        )
        draft.preempted.append(victim)
        requests.preempt(victim)
        admission.admit(draft, now)
    if draft.spans or len(running) or draft.ended:
        return
    candidate = waiting.next(now)
    if candidate is not None:
        waiting.put_back(candidate.request)
        requests.give_up(draft, candidate.request, "memory")
