"""What was done since the start, in tokens and requests."""

from __future__ import annotations

from dataclasses import dataclass

from radix_engine.cache import MatchEnd, Reason
from scheduler.plan import ScheduledSpan
from scheduler.request import Request


@dataclass(slots=True)
class Counters:
    """Token and request counts since the start. Prompt tokens are counted once, at first admission.

    ``cached_tokens`` + ``computed_tokens`` + ``cached_late_tokens`` = ``prompt_tokens`` for
    requests whose prompt was finished: served from the tree at first admission, run through the
    model for the first time, and found in the tree after a preemption. ``recomputed_tokens`` ran
    again after one.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_late_tokens: int = 0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    generated_tokens: int = 0
    requests_finished: int = 0
    requests_aborted: int = 0
    preemptions: int = 0

    def count_admission(self, request: Request, matched: int) -> None:
        """A waiting request starts with ``matched`` tokens from the tree, maybe not the first time.

        To be called before the request's own ``cached_tokens`` and ``most_computed_tokens`` change.
        """
        if request.cached_tokens is None:
            self.prompt_tokens += request.num_prompt_tokens
            self.cached_tokens += matched
        else:
            late = min(matched, request.num_prompt_tokens) - request.most_computed_tokens
            self.cached_late_tokens += max(0, late)

    def count_computed(self, span: ScheduledSpan) -> None:
        """A step has computed a span."""
        request, end = span.request, span.start + span.count
        again = max(0, min(end, request.most_computed_tokens) - span.start)
        self.recomputed_tokens += again
        first_time_end = min(end, request.num_prompt_tokens)
        self.computed_tokens += max(0, first_time_end - (span.start + again))


class MatchEnds:
    """Why no more of the prompts was cached, at their first admission.

    ``requests``: how many by reason; ``missed_tokens``: how many of their prompts' tokens were not
    cached. All reasons are there from the start, so that other threads may look at any time.
    """

    __slots__ = ("missed_tokens", "requests")

    def __init__(self) -> None:
        self.requests = dict.fromkeys(Reason, 0)
        self.missed_tokens = dict.fromkeys(Reason, 0)

    def count(self, end: MatchEnd, missed: int) -> None:
        """A request starts for the first time, with so many tokens of its prompt to compute."""
        self.requests[end.reason] += 1
        self.missed_tokens[end.reason] += missed
