"""Whether every block has one owner, as the scheduler and the cache say together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.holding import Cache
from scheduler.request import Request


def audit(cache: Cache, running: Sequence[Request], waiting: Iterable[Request]) -> list[str]:
    """The cache's full audit over everything that requests hold; empty when all is well."""
    size = cache.block_size
    private = [request.private_tail(size) for request in running]
    leases = [request.lease for request in running if request.lease is not None]
    problems = cache.audit(private, leases)
    for request in waiting:
        if request.lease is not None or request.block_table:
            problems.append(f"request {request.request_id} waits and holds blocks")
    return problems


def quarantine(cache: Cache, running: Sequence[Request]) -> list[str]:
    """Take blocks that have not exactly one owner out of use, for good; what was wrong."""
    return cache.quarantine([request.private_tail(cache.block_size) for request in running])


def sum_problem(cache: Cache, running: Iterable[Request]) -> str | None:
    """What does not add up in the books of blocks, or None. Cost: O(running); for every step."""
    blocks = leased = 0
    for request in running:
        blocks += len(request.block_table)
        lease = request.lease
        if lease is not None:
            leased += lease.num_tokens
    pool = cache.pool
    tails = blocks - leased // cache.block_size
    # A quarantined block that a request still holds is nobody's in the books.
    if not 0 <= tails - pool.private_blocks <= pool.quarantined_blocks:
        return f"requests hold {tails} private blocks, the books say {pool.private_blocks}"
    return pool.sum_problem()
