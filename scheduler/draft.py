"""A step while it is being planned."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.plan import Ended, RowCopy, ScheduledSpan, StepPlan
from scheduler.request import Request

_make_span = ScheduledSpan._make  # a third less than calling the class costs


class Draft:
    """Spans so far, and how many tokens are left of the step's budget.

    ``ahead``: the step before is being computed. Nobody is preempted then, since what it will give
    back is not known; ``lacks_room`` says that somebody had to sit out.
    """

    __slots__ = ("ahead", "copies", "ended", "lacks_room", "preempted", "spans", "tokens_left")

    def __init__(self, max_tokens: int, copies: Iterable[RowCopy], *, ahead: bool = False) -> None:
        self.ahead = ahead
        self.lacks_room = False
        self.tokens_left = max_tokens
        self.spans: dict[int, ScheduledSpan] = {}  # by request, in the order of planning
        self.copies = list(copies)
        self.preempted: list[Request] = []
        self.ended: list[Ended] = []

    def give(self, request: Request, count: int) -> ScheduledSpan:
        """Plan the request's next ``count`` tokens; in place of what was planned for it before."""
        before = self.spans.get(request.request_id)
        start = request.num_computed_tokens
        span = _make_span((request, start, count, start + count == len(request.tokens)))
        self.spans[request.request_id] = span
        self.tokens_left -= count - (0 if before is None else before.count)
        return span

    def give_one(self, request: Request) -> None:
        """Plan the one token that the request needs before its next is sampled; nothing was planned
        for it before. It is `give` for those who decode: they are many, and alike."""
        start = request.num_computed_tokens
        self.spans[request.request_id] = _make_span((request, start, 1, True))
        self.tokens_left -= 1

    def take_back(self, request: Request) -> None:
        """The request does not take part after all."""
        span = self.spans.pop(request.request_id, None)
        if span is not None:
            self.tokens_left += span.count

    def plan(self) -> StepPlan:
        """The finished plan."""
        return StepPlan(
            tuple(self.spans.values()),
            tuple(self.preempted),
            tuple(self.copies),
            tuple(self.ended),
        )
