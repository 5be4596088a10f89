"""Beam search as one would write it down: every continuation of every beam is scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

Tokens = tuple[int, ...]


class Found(NamedTuple):
    """An answer and its score."""

    score: float
    tokens: Tokens


def naive_beam_search(
    log_probs: Callable[[Tokens], Sequence[float]],
    width: int,
    max_tokens: int,
    ends: frozenset[int],
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
) -> list[Found]:
    """The best answers, best first. ``log_probs`` of every token after some."""
    beams: list[tuple[float, Tokens]] = [(0.0, ())]
    found: list[Found] = []
    for length in range(1, max_tokens + 1):
        continued = [
            (total + log_prob, (*tokens, token))
            for total, tokens in beams
            for token, log_prob in enumerate(log_probs(tokens))
        ]
        continued.sort(reverse=True)
        found += [
            Found(total / length**length_penalty, tokens)
            for total, tokens in continued[:width]
            if tokens[-1] in ends or length == max_tokens
        ]
        found = sorted(found, reverse=True)[:width]
        beams = [each for each in continued if each[1][-1] not in ends][:width]
        if len(found) < width:
            continue
        final = max_tokens if early_stopping == "never" and length_penalty > 0 else length
        if early_stopping is True or beams[0][0] / final**length_penalty <= found[-1].score:
            break
    return found
