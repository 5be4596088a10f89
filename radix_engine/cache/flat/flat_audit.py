"""The full audit of the flat index: every block has exactly one owner, and queue, keys, pins and
leases agree.

It reports and changes nothing. Cost: O(blocks + blocks of all leases); the tests run it after each
operation.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

from radix_engine.cache.block_pool import IN_FLIGHT
from radix_engine.cache.flat.flat_lease import FlatLease
from radix_engine.cache.flat.stored_blocks import StoredBlocks
from radix_engine.cache.ownership import Holdings, ownership_problems
from radix_engine.cache.token_run import token_array


def audit(
    stored: StoredBlocks,
    block_size: int,
    private: Iterable[array[int]],
    leases: Iterable[FlatLease] | None = None,
) -> list[str]:
    """What is wrong, one line each; an empty list when all is well.

    ``private``: the blocks of each request's own tail. With ``leases`` (all live ones), pins and
    blocks in flight are counted again too.
    """
    problems = ownership_problems(stored.pool, holdings(stored, private))
    problems += _key_problems(stored)
    if leases is not None:
        problems += _lease_problems(stored, block_size, list(leases))
    return problems


def holdings(stored: StoredBlocks, private: Iterable[array[int]]) -> Holdings:
    """Who holds which blocks, by the holders' own word. Cost: O(all blocks)."""
    pool = stored.pool
    pinned = [block for block, pins in enumerate(stored.pins) if pins]
    computed = token_array(block for block in pinned if pool.owner_of(block) != IN_FLIGHT)
    in_flight = token_array(block for block in pinned if pool.owner_of(block) == IN_FLIGHT)
    return Holdings(private, [token_array(stored.queue), computed], [in_flight])


def _key_problems(stored: StoredBlocks) -> Iterator[str]:
    for key, block in stored.index.items():
        if stored.keys[block] != key:
            yield f"block {block} is found by a key that is not its own"
    for block, (own, pins) in enumerate(zip(stored.keys, stored.pins, strict=True)):
        if own is not None and stored.index.get(own) != block:
            yield f"block {block} has a key and is not found by it"
        if own is not None and not pins and block not in stored.queue:
            yield f"block {block} has a key, and neither a lease nor the free queue holds it"
        if own is None and block in stored.queue:
            yield f"block {block} is in the free queue without a key"
        if pins < 0:
            yield f"block {block} is pinned {pins} times"
    for block in stored.withdrawn:
        if stored.keys[block] is not None or not stored.pins[block]:
            yield f"block {block} was withdrawn, but is found or held by nobody"
    times = list(stored.queue.times())
    if times != sorted(times):
        yield "the free queue is not in the order of its times"


def _lease_problems(
    stored: StoredBlocks, block_size: int, leases: list[FlatLease]
) -> Iterator[str]:
    pins: Counter[int] = Counter()
    in_flight = set(stored.withdrawn)
    for lease in leases:
        if lease.released:
            yield f"a released lease of {lease.num_tokens} tokens is called live"
        if len(lease.held) * block_size != lease.num_tokens:
            yield f"a lease of {lease.num_tokens} tokens holds {len(lease.held)} blocks"
        pins.update(lease.held)
        in_flight.update(lease.held[len(lease.held) - lease.announced :])
    for block, counted in enumerate(stored.pins):
        if counted != pins[block]:
            yield f"block {block} is pinned {counted} times, {pins[block]} leases hold it"
        if block in stored.pool.quarantined:
            continue
        if (stored.pool.owner_of(block) == IN_FLIGHT) != (block in in_flight):
            yield f"block {block} is announced or computed, and the pool's books say otherwise"
