"""Steps that are planned while the one before is computed: what is in flight, and what comes of it.

::

    host     plan k+1, launch it | hand out k's tokens | plan k+2 ...
    device   ... compute k       | compute k+1         | ...

Step k+1 takes the tokens that k samples from the device: nobody has read them yet when it is
launched. So only steps whose tokens can be drawn without looking at the ones before go ahead; for
others the host waits, as without look-ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from radix_engine.model.batch import Follow, Span
from radix_engine.model.sampling import finite_rows, sample_later
from radix_engine.model.sampling_draw import Drawer
from scheduler import Request, ScheduledSpan, StepPlan
from server.answer import Answer
from server.beam_search import BeamSearch


@runtime_checkable
class FollowingModel(Protocol):
    """A model whose step can be launched before the step before it has ended."""

    def forward_following(self, spans: Sequence[Span], follow: Follow | None) -> torch.Tensor:
        """As ``forward``, with tokens from the device."""
        ...


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was launched. ``requests``: those who sample, in the order of ``drawn``: int64
    [2, requests], their tokens and whether their logits were numbers, on their way to the host."""

    plan: StepPlan
    requests: tuple[Request, ...]
    drawn: torch.Tensor
    on_host: torch.Tensor
    arrived: torch.cuda.Event | None

    def wait(self) -> tuple[dict[Request, int], list[Request]]:
        """The sampled tokens, and whose logits were no numbers."""
        if self.arrived is not None:
            self.arrived.synchronize()
        tokens, finite = self.on_host.tolist()
        broken = [r for r, good in zip(self.requests, finite, strict=True) if not good]
        return dict(zip(self.requests, tokens, strict=True)), broken


def can_fly(
    spans: Sequence[ScheduledSpan],
    answers: Mapping[int, Answer],
    searches: Mapping[int, BeamSearch],
) -> bool:
    """Whether a step's tokens can be drawn on the device, without a look at the ones before."""
    return bool(spans) and all(_is_plain(span, answers, searches) for span in spans)


def _is_plain(
    span: ScheduledSpan, answers: Mapping[int, Answer], searches: Mapping[int, BeamSearch]
) -> bool:
    request = span.request
    answer = answers.get(request.request_id)
    if answer is None or request.request_id in searches or request.branches:
        return False
    if answer.scores is not None and span.start < request.num_prompt_tokens:
        return False
    return answer.wants_tokens and answer.logprobs is None and not answer.changes_logits


def launch(
    plan: StepPlan,
    model: FollowingModel,
    answers: Mapping[int, Answer],
    before: Flight | None,
    drawer: Drawer | None = None,
) -> Flight:
    """Queue a step that `can_fly` on the device, behind the one before. ``drawer``: as `sample`."""
    requests = tuple(span.request for span in plan.sampling)
    ways = [answers[request.request_id].sample_row() for request in requests]
    spans = [
        Span(span.tokens, span.start, span.request.block_table, int(span.samples))
        for span in plan.spans
    ]
    logits = model.forward_following(spans, _follow(plan.spans, before))
    tokens = sample_later(logits, ways, drawer)
    drawn = torch.stack((tokens, finite_rows(logits).to(torch.int64)))
    if drawn.device.type != "cuda":
        return Flight(plan, requests, drawn, drawn, None)
    on_host = torch.empty(drawn.shape, dtype=drawn.dtype, pin_memory=True)
    on_host.copy_(drawn, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(drawn.device))
    return Flight(plan, requests, drawn, on_host, arrived)


def _follow(spans: Sequence[ScheduledSpan], before: Flight | None) -> Follow | None:
    """Which of the step's tokens the one before samples: the last token of a guessed request."""
    places: list[int] = []
    guessed: list[Request] = []
    end = 0
    for span in spans:
        end += span.count
        if span.samples and span.request.is_guessed:
            places.append(end - 1)
            guessed.append(span.request)
    if not guessed:
        return None
    assert before is not None
    rows = {request: row for row, request in enumerate(before.requests)}
    return Follow(before.drawn[0], places, [rows[request] for request in guessed])
