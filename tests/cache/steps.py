"""Requests of one step, which attach to what others of it announce."""

from __future__ import annotations

from radix_engine.cache import Lease, PrefixCache, pack
from tests.cache.trees import hold, ids, lease_of, store, take

SIZE = 4


def announce_after(cache: PrefixCache, lease: Lease, tokens: list[int]) -> bool:
    """Announce the full blocks of ``tokens`` that follow the lease, in new private blocks."""
    run = tokens[lease.num_tokens : len(tokens) // SIZE * SIZE]
    blocks = take(cache, len(run) // SIZE)
    done = cache.announce(lease, pack(run), blocks)
    if not done:
        cache.free(blocks)
    return done


def announce(cache: PrefixCache, tokens: list[int]) -> Lease:
    """A request that enters the coming step with a whole number of blocks."""
    lease = lease_of(cache, [*tokens, 0])
    assert announce_after(cache, lease, tokens)
    return lease


def owners(cache: PrefixCache, lease: Lease) -> list[int]:
    return [cache.pool.owner_of(block) for block in lease.blocks()]


HEAD = ids(8, 1)
RUN = ids(12, 3)
ALL_OF_IT = [*HEAD, *RUN]


# Every kind of place in the tree where an announcement can begin: each makes the request, and says
# how many of its tokens are computed.


def in_a_fresh_namespace(cache: PrefixCache) -> tuple[Lease, int]:
    lease = lease_of(cache, [*ALL_OF_IT, 0])
    return lease, 0


def at_the_end_of_a_node(cache: PrefixCache) -> tuple[Lease, int]:
    """The node has children, so that the announcement becomes another one."""
    store(cache, [*HEAD, *ids(4, 8)])
    store(cache, [*HEAD, *ids(4, 9)])
    return lease_of(cache, [*ALL_OF_IT, 0]), len(HEAD)


def inside_a_node(cache: PrefixCache) -> tuple[Lease, int]:
    store(cache, [*HEAD, *ids(8, 2)])
    return lease_of(cache, [*ALL_OF_IT, 0]), len(HEAD)


def grown_in_place(cache: PrefixCache) -> tuple[Lease, int]:
    return hold(cache, HEAD), len(HEAD)


def on_a_ghost(cache: PrefixCache) -> tuple[Lease, int]:
    store(cache, ALL_OF_IT)
    cache.evict(3)
    return lease_of(cache, [*ALL_OF_IT, 0]), len(HEAD)


STARTS = [in_a_fresh_namespace, at_the_end_of_a_node, inside_a_node, grown_in_place, on_a_ghost]
