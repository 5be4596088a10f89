"""What a step computes, and what came of it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.request import Request, State


class ScheduledSpan(NamedTuple):
    """``count`` tokens of a request from position ``start`` on. Its block table covers them.

    ``samples``: whether the step ends with the request's last token, so that the next one is
    sampled.
    """

    request: Request
    start: int
    count: int  # type: ignore[assignment]  # hides a method of tuples that nobody needs here
    samples: bool

    @property
    def tokens(self) -> array[int]:
        """The token ids to compute."""
        start = self.start
        return self.request.tokens[start : start + self.count]


class RowCopy(NamedTuple):
    """K and V of the first ``rows`` tokens of block ``source`` go to the same places of
    ``target``."""

    source: int
    target: int
    rows: int


class Ended(NamedTuple):
    """A request that ended without being computed. ``reason``: ``deadline``, or ``memory`` (alone
    with all of it, it still needs more)."""

    request: Request
    reason: str


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: the spans to compute, each request at most once, who was preempted for them, and
    who ended instead.

    ``copies`` are to be made first, in their order: a source may be another block's place before
    the step is over.
    """

    spans: tuple[ScheduledSpan, ...]
    preempted: tuple[Request, ...] = ()
    copies: tuple[RowCopy, ...] = ()
    ended: tuple[Ended, ...] = ()

    @property
    def still_running(self) -> StepPlan:
        """The plan without the requests that were ended, or sent back, since it was made."""
        spans = tuple(span for span in self.spans if span.request.state is State.RUNNING)
        return StepPlan(spans, self.preempted, self.copies, self.ended)

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(span.count for span in self.spans)

    @property
    def sampling(self) -> tuple[ScheduledSpan, ...]:
        """The spans that get a new token, in the order in which ``commit`` wants the tokens: one
        for the request, and then one for each of its branches."""
        return tuple([span for span in self.spans if span.samples])


class NewToken(NamedTuple):
    """A sampled token. ``finish_reason``: ``stop``, ``length``, or None while it goes on."""

    request: Request
    token: int
    finish_reason: str | None


def check_tokens(sampling: Sequence[ScheduledSpan], tokens: Sequence[int | None]) -> None:
    """Raise ValueError where these are not the tokens that `StepPlan.sampling` asks for."""
    of_branches = 0
    for place, span in enumerate(sampling):
        if span.request.branches:
            first, branches = place + of_branches, len(span.request.branches)
            if first < len(tokens) and tokens[first] is not None:
                if None in tokens[first + 1 : first + 1 + branches]:
                    raise ValueError("a branch cannot fork off without a token")
                of_branches += branches
    wanted = len(sampling) + of_branches
    if len(tokens) != wanted:
        raise ValueError(f"{wanted} requests wait for a token, {len(tokens)} came")
