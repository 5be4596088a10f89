"""What a step computes, and what came of it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from scheduler.request import Request


@dataclass(frozen=True, slots=True)
class ScheduledSpan:
    """``count`` tokens of a request from position ``start`` on. Its block table covers them."""

    request: Request
    start: int
    count: int

    @property
    def samples(self) -> bool:
        """Whether the step ends with the request's last token, so that the next one is sampled."""
        return self.start + self.count == len(self.request.tokens)

    @property
    def tokens(self) -> array[int]:
        """The token ids to compute."""
        return self.request.tokens[self.start : self.start + self.count]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: the spans to compute, each request at most once, and who was preempted for them."""

    spans: tuple[ScheduledSpan, ...]
    preempted: tuple[Request, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(span.count for span in self.spans)

    @property
    def sampling(self) -> tuple[ScheduledSpan, ...]:
        """The spans that get a new token, in the order in which ``commit`` wants the tokens."""
        return tuple(span for span in self.spans if span.samples)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A sampled token. ``finish_reason``: ``stop``, ``length``, or None while it goes on."""

    request: Request
    token: int
    finish_reason: str | None
