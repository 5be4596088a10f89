"""Few long prompts asked again and again, each time with something of its own at the end: what
share of the prompt tokens does an index serve?

Any `PrefixIndex` will do, so that the flat index and the radix tree can be held side by side.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from radix_engine.cache.interface import L, M, PrefixIndex
from radix_engine.cache.token_run import TOKEN_BYTES, pack

PROMPTS = 8
SHARED_TOKENS = 2048
UNIQUE_TOKENS = 50
REQUESTS = 2000
CEILING = SHARED_TOKENS / (SHARED_TOKENS + UNIQUE_TOKENS)


def zipf_order(seed: int = 0, requests: int = REQUESTS, prompts: int = PROMPTS) -> list[int]:
    """Which prompt each request asks: prompt k with a weight of 1 / (k + 1)."""
    weights = [1 / (rank + 1) for rank in range(prompts)]
    return random.Random(seed).choices(range(prompts), weights, k=requests)


def round_robin_order(requests: int = REQUESTS, prompts: int = PROMPTS) -> list[int]:
    """Each prompt in turn."""
    return [request % prompts for request in range(requests)]


def hit_share(index: PrefixIndex[M, L], order: Iterable[int]) -> float:
    """Send the requests one at a time; the share of all prompt tokens that were served.

    Each request leases what is stored of its prompt, computes the rest, publishes the full blocks
    and ends. No two prompts and no two requests' own tokens share a first token.
    """
    size = index.block_size
    served = sent = 0
    for request, prompt in enumerate(order):
        shared = range(prompt * SHARED_TOKENS, (prompt + 1) * SHARED_TOKENS)
        own = 1_000_000 + request * UNIQUE_TOKENS
        tokens = pack([*shared, *range(own, own + UNIQUE_TOKENS)])
        count = len(tokens) // TOKEN_BYTES
        match = index.match(tokens)
        lease = index.lease(match)
        served += match.num_tokens
        sent += count
        leased = lease.num_tokens
        blocks = index.allocate(-(-count // size) - leased // size)
        assert blocks is not None, "the pool is smaller than one request"
        full = count // size * size
        first_part = (full - leased) // size
        run = tokens[leased * TOKEN_BYTES : full * TOKEN_BYTES]
        index.publish(lease, run, blocks[:first_part])
        index.free(blocks[first_part:])
        index.release(lease)
    return served / sent
