"""Requests served one at a time by a prefix cache alone, as an engine would, without computing."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Protocol

from radix_engine.cache import TOKEN_BYTES, PrefixIndex
from workloads.simulation.load import LoadRequest

Index = PrefixIndex[Any, Any]


class Seen(Protocol):
    """Is told of each request: its prompt, the blocks it reads, and which of them it computed."""

    def __call__(self, run: bytes, table: array[int], own: array[int]) -> None: ...


def serve(cache: Index, prompt: array[int], seen: Seen | None = None) -> int:
    """One request: match, store the full blocks of the prompt that are new, as far as there is
    room, and give all back. Returns how many tokens were served.
    """
    run = prompt.tobytes()
    match = cache.match(run)
    served: int = match.num_tokens
    lease = cache.lease(match)
    held = lease.num_tokens
    missing = min(
        len(prompt) // cache.block_size - held // cache.block_size, cache.available_blocks
    )
    blocks = cache.allocate(missing)
    assert blocks is not None
    end = held + len(blocks) * cache.block_size
    table = cache.publish(lease, run[held * TOKEN_BYTES : end * TOKEN_BYTES], blocks)
    if seen is not None:
        computed = set(blocks)
        own = array("i", [block for block in table if block in computed])
        seen(run, lease.blocks(), own)
    cache.release(lease)
    return served


def hit_rate(cache: Index, requests: Iterable[LoadRequest]) -> float:
    """Prompt tokens served over those asked for, of requests that come one after the other."""
    asked = served = 0
    for request in requests:
        asked += len(request.prompt)
        served += serve(cache, request.prompt)
    return served / asked if asked else 0.0
