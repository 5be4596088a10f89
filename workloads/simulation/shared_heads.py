"""Made-up loads in which many requests begin with one of a few long heads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random

from workloads.simulation.load import Load, LoadRequest, made_up_tokens


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of a request: of the head that it shares, of its own, and of its reply."""

    head: int
    own: int
    reply: int


def zipf_load(requests: int, heads: int, exponent: float, sizes: Sizes, seed: int) -> Load:
    """Requests that arrive one a second on average (Poisson); each begins with a head drawn by
    Zipf's law: head k of 1, 2, 3 ... with a weight of 1 / k ** ``exponent``."""
    rng = Random(f"zipf {seed}")
    weights = list(accumulate(1 / rank**exponent for rank in range(1, heads + 1)))
    drawn = rng.choices(range(heads), cum_weights=weights, k=requests)
    moments = accumulate(rng.expovariate(1.0) for _ in range(requests))
    return _load(list(zip(drawn, moments, strict=True)), sizes, seed)


def fewshot_load(heads: int, questions: int, sizes: Sizes, seed: int) -> Load:
    """An offline batch: so many questions to each head, shuffled, all there at the start."""
    asked = [head for head in range(heads) for _ in range(questions)]
    Random(f"fewshot {seed}").shuffle(asked)
    return _load([(head, 0.0) for head in asked], sizes, seed)


def _load(requests: list[tuple[int, float]], sizes: Sizes, seed: int) -> Load:
    heads = {head: made_up_tokens(seed, f"head {head}", sizes.head) for head, _ in requests}
    sessions = []
    for number, (head, moment) in enumerate(requests):
        own = made_up_tokens(seed, f"own {number}", sizes.own)
        reply = made_up_tokens(seed, f"reply {number}", sizes.reply)
        sessions.append((LoadRequest(heads[head] + own, reply, moment),))
    return Load(tuple(sessions))
