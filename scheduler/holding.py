"""What a running request holds of the KV memory: it grows, hands over what is full, and lets go.

::

    |  leased from the tree, or published   |  private tail           |
    0                        lease.num_tokens          blocks so far
       shared, read-only                       written by this request
"""

from __future__ import annotations

from typing import Any

from radix_engine.cache import PrefixIndex
from scheduler.budget import blocks_missing
from scheduler.request import Request
from scheduler.values import payload_of

Cache = PrefixIndex[Any, Any]


def extend(cache: Cache, request: Request, tokens: int) -> bool:
    """Make the block table cover the first ``tokens`` tokens, if enough blocks are available."""
    table, size = request.block_table, cache.block_size
    if tokens <= len(table) * size:
        return True
    missing = blocks_missing(tokens, len(table), size)
    blocks = cache.allocate(missing)
    if blocks is None:
        return False
    table.extend(blocks)
    return True


def announce(cache: Cache, request: Request, end: int) -> bool:
    """Let waiting requests attach, in this very step, to the blocks that it will fill: those below
    token ``end``. False where there is nothing to announce, or somebody else stores it already."""
    lease, size = request.lease, cache.block_size
    assert lease is not None
    start, end = lease.num_tokens, end // size * size
    if start >= end or not request.stores:
        return False
    run = request.tokens[start:end].tobytes()
    return cache.announce(lease, run, request.block_table[start // size : end // size])


def publish(cache: Cache, request: Request, computed: int) -> bool:
    """Hand full blocks of the first ``computed`` tokens over to the tree. The block table then
    names the tree's blocks, which others may have stored first. False where there was nothing to
    hand over."""
    lease, size = request.lease, cache.block_size
    assert lease is not None
    start, end = lease.num_tokens, computed // size * size
    if start >= end or not request.stores:
        return False
    first = start // size
    run = request.tokens[start:end].tobytes()
    blocks = request.block_table[first : end // size]
    table = cache.publish(lease, run, blocks, payload_of(request, start, end))
    request.block_table[first : first + len(table)] = table
    return True


def let_go(cache: Cache, request: Request) -> None:
    """Give back all that a request holds; the prefixes that it published stay stored."""
    lease, tail = request.lease, request.private_tail(cache.block_size)
    request.lease, request.block_table = None, request.block_table[:0]
    if lease is not None:
        try:
            cache.free(tail)
        finally:
            cache.release(lease)


def lost_if_preempted(cache: Cache, request: Request) -> int:
    """Computed tokens in blocks that only this request holds: what a preemption puts at risk."""
    lease = request.lease
    assert lease is not None
    return cache.sole_tokens(lease) + request.num_computed_tokens - lease.num_tokens
