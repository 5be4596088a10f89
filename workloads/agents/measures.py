"""What a replay's records say: percentiles, rates per turn, and whether the counts agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from workloads.agents.client import Answer
from workloads.agents.replay import Record


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that ``share`` (0 to 1) of the values do not exceed; None for no values.

    Between two values it is interpolated linearly, so the p99 of a few values lies close below
    their maximum.
    """
    if not values:
        return None
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def decode_rate(answer: Answer) -> float | None:
    """Tokens a second after the first one; None where fewer than two tokens or no time passed.

    Where the server does not tell how many tokens there are, the pieces of its stream count.
    """
    tokens = answer.pieces if answer.completion_tokens is None else answer.completion_tokens
    span = answer.last_s - answer.ttft_s
    if tokens < 2 or span <= 0:
        return None
    return (tokens - 1) / span


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token sums of calls; None where the server does not tell.

    ``cached`` is the sum over the calls for which the server told it; ``untold`` counts the others.
    Some servers say nothing where nothing was cached, so with both kinds ``cached`` is the least
    that it can be, and ``computed`` the most.
    """

    prompt: int | None
    cached: int | None
    generated: int | None
    untold: int = 0

    @property
    def computed(self) -> int | None:
        """Prompt tokens that were run through the model."""
        return None if self.prompt is None or self.cached is None else self.prompt - self.cached

    @property
    def hit_rate(self) -> float | None:
        """Cached over prompt tokens, each summed over all calls; None without a prompt token."""
        return self.cached / self.prompt if self.prompt and self.cached is not None else None


def token_sums(records: Iterable[Record]) -> Tokens:
    """The sums of what the server reported with each answer."""
    answers = [record.answer for record in records]
    told = [answer.cached_tokens for answer in answers if answer.cached_tokens is not None]
    return Tokens(
        prompt=_sum([answer.prompt_tokens for answer in answers]),
        cached=sum(told) if told or not answers else None,
        generated=_sum([answer.completion_tokens for answer in answers]),
        untold=len(answers) - len(told),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    """None where one of them is."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@dataclass(frozen=True, slots=True)
class Ttft:
    """Time to the first token over some calls, in milliseconds; None without a call."""

    calls: int
    p50_ms: float | None
    p99_ms: float | None


def ttft(records: Sequence[Record]) -> Ttft:
    """The median and the 99th percentile of the records' time to first token."""
    times = [record.answer.ttft_s * 1000 for record in records]
    return Ttft(len(times), percentile(times, 0.5), percentile(times, 0.99))


@dataclass(frozen=True, slots=True)
class Turn:
    """All sessions' calls at one turn, counted from 1."""

    turn: int
    ttft: Ttft
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Summary:
    """One run's figures. ``cold`` are sessions' first turns, ``warm`` all later ones."""

    all: Ttft
    cold: Ttft
    warm: Ttft
    tokens: Tokens
    turns: tuple[Turn, ...]
    decode_tps: float | None
    inter_token_ms: float | None
    call_ms: float | None


def summarise(records: Sequence[Record]) -> Summary:
    """All figures of a run. Decode speed and times per call are medians over calls."""
    rates = [rate for r in records if (rate := decode_rate(r.answer)) is not None]
    numbers = sorted({record.turn for record in records})
    by_turn = {n: [record for record in records if record.turn == n] for n in numbers}
    return Summary(
        all=ttft(records),
        cold=ttft([record for record in records if record.turn == 1]),
        warm=ttft([record for record in records if record.turn > 1]),
        tokens=token_sums(records),
        turns=tuple(Turn(n, ttft(rows), token_sums(rows)) for n, rows in by_turn.items()),
        decode_tps=percentile(rates, 0.5),
        inter_token_ms=percentile([1000 / rate for rate in rates], 0.5),
        call_ms=percentile([record.answer.total_s * 1000 for record in records], 0.5),
    )


def counter_differences(
    before: Mapping[str, int], after: Mapping[str, int], client: Tokens
) -> tuple[str, ...]:
    """Where the server's counters moved otherwise than the client's sums; empty if they agree."""
    # What a preempted request found in the tree afterwards was not cached when it started, and was
    # not computed by it either; no response tells.
    late = after.get("cached_late_tokens", 0) - before.get("cached_late_tokens", 0)
    computed = client.computed
    expected = {
        "prompt_tokens": client.prompt,
        "cached_tokens": client.cached,
        "computed_tokens": None if computed is None else computed - late,
    }
    differences: list[str] = []
    for name, sent in expected.items():
        if sent is None:
            differences.append(f"{name}: the answers do not tell")
        elif name not in before or name not in after:
            differences.append(f"{name}: the server has no such counter")
        elif after[name] - before[name] != sent:
            differences.append(f"{name}: server {after[name] - before[name]:,}, client {sent:,}")
    return tuple(differences)


def prompts_differ(first: Sequence[Record], second: Sequence[Record]) -> tuple[str, ...]:
    """Calls that only one run made, or for which the runs sent different prompts."""
    sent = [{(r.session, r.turn): r.prompt_digest for r in run} for run in (first, second)]
    return tuple(
        f"session {session}, turn {turn}"
        for session, turn in sorted(sent[0].keys() | sent[1].keys())
        if sent[0].get((session, turn)) != sent[1].get((session, turn))
    )


def equal_replies(first: Sequence[Record], second: Sequence[Record]) -> tuple[int, int]:
    """How many calls that both runs made got the same text, and how many there are."""
    texts = {(r.session, r.turn): r.answer.text for r in first}
    pairs = [(texts[key], r.answer.text) for r in second if (key := (r.session, r.turn)) in texts]
    return sum(a == b for a, b in pairs), len(pairs)


def record_data(record: Record) -> dict[str, object]:
    """A record as JSON-able data, without the reply's text."""
    answer = asdict(record.answer)
    del answer["text"]
    told = {"session": record.session, "turn": record.turn, "sent_s": record.sent_s, **answer}
    return told | ({"after_resume": record.part} if record.part else {})
