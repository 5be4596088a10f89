"""Prompts and ways to answer them that the engine's tests share."""

from __future__ import annotations

from server import GenerationParams, SamplingParams

GREEDY = SamplingParams(temperature=0.0)


def greedy(max_tokens: int = 8, stop: tuple[str, ...] = ()) -> GenerationParams:
    """The likeliest tokens, so that answers can be compared."""
    return GenerationParams(max_tokens=max_tokens, sampling=GREEDY, stop=stop)


def ids(count: int, seed: int) -> list[int]:
    """Token ids that differ between seeds from the first one on."""
    return [4 + (seed + 7 * i) % 500 for i in range(count)]
