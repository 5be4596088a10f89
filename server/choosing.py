"""From a step's logits to tokens: who wants which rows, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from radix_engine.model.logprobs import token_logprobs
from radix_engine.model.sampling import SampleRow, sample
from radix_engine.model.sampling_draw import Drawer
from radix_engine.model.token_logprob import TokenLogprob
from scheduler import Request, ScheduledSpan
from server.answer import Answer
from server.beam_search import BeamSearch


class SpanRows(NamedTuple):
    """The rows ``first`` to ``last`` of a step's logits are those after a span's last tokens."""

    span: ScheduledSpan
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """A step's tokens as the scheduler wants them: None for beams, whose ``searches`` have got
    their logits, and for ``done``: requests that wanted no more than their prompt computed.
    ``logprobs``: by request, where asked for."""

    tokens: list[int | None] = field(default_factory=list)
    logprobs: dict[int, TokenLogprob] = field(default_factory=dict)
    searches: list[BeamSearch] = field(default_factory=list)
    done: list[Request] = field(default_factory=list)


def num_logits(span: ScheduledSpan, answers: Mapping[int, Answer]) -> int:
    """After how many of a span's last tokens logits are wanted."""
    request = span.request
    if span.start < request.num_prompt_tokens:
        answer = answers.get(request.request_id)
        if answer is not None and answer.scores is not None:
            return max(span.samples, answer.scores.num_logits(request, span.start, span.count))
    return int(span.samples)


def rows_of(spans: Sequence[ScheduledSpan], counts: Sequence[int]) -> list[SpanRows]:
    """Where the logits of each span are that wanted some."""
    rows: list[SpanRows] = []
    end = 0
    for span, count in zip(spans, counts, strict=True):
        if count:
            rows.append(SpanRows(span, end, end + count - 1))
            end += count
    return rows


def score_prompts(
    rows: Sequence[SpanRows], logits: torch.Tensor, answers: Mapping[int, Answer]
) -> None:
    """Give the logits of prompts to those who want the log-probabilities of their tokens."""
    for span, first, last in rows:
        if span.start >= span.request.num_prompt_tokens:
            continue
        answer = answers.get(span.request.request_id)
        scores = None if answer is None else answer.scores
        if scores is not None and not scores.is_complete(span.request):
            scores.take(span.request, span.start + span.count, logits[first : last + 1])


def choose(
    rows: Sequence[SpanRows],
    logits: torch.Tensor,
    answers: Mapping[int, Answer],
    searches: Mapping[int, BeamSearch],
    drawer: Drawer | None = None,
) -> Chosen:
    """A token for each request whose span samples, and for each of its branches, which share its
    row of logits. ``drawer``: as `sample`."""
    chosen = Chosen()
    places: list[int] = []
    picked: list[int] = []  # rows of the logits
    ways: list[SampleRow] = []
    scored: list[tuple[int, Request, int]] = []  # place among these, whose, how many likeliest
    beams: dict[BeamSearch, list[tuple[Request, int]]] = {}
    for span, _, row in rows:
        if not span.samples:
            continue
        request = span.request
        search = searches.get(request.request_id)
        if search is not None:
            beams.setdefault(search, []).append((request, row))
            chosen.tokens.append(None)
            continue
        if not answers[request.request_id].wants_tokens:
            chosen.done.append(request)
            chosen.tokens.append(None)
            continue
        for each in (request, *request.branches):
            answer = answers[each.request_id]
            if answer.logprobs is not None:
                scored.append((len(ways), each, answer.logprobs))
            places.append(len(chosen.tokens))
            chosen.tokens.append(None)
            picked.append(row)
            ways.append(answer.sample_row())
    own = logits if picked == list(range(len(logits))) else logits[picked]
    drawn = sample(own, ways, drawer)
    for place, token in zip(places, drawn, strict=True):
        chosen.tokens[place] = token
    if scored:
        wanted = [place for place, _, _ in scored]
        found = token_logprobs(
            own[wanted], [drawn[place] for place in wanted], [top for _, _, top in scored]
        )
        for (_, request, _), logprob in zip(scored, found, strict=True):
            chosen.logprobs[request.request_id] = logprob
    for search, of_search in beams.items():
        search.take([beam for beam, _ in of_search], logits[[row for _, row in of_search]])
        chosen.searches.append(search)
    return chosen
