"""Small helpers: what a request does with the flat index, in a few lines."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from radix_engine.cache.flat import FlatCache, FlatLease
from radix_engine.cache.namespace import DEFAULT, Namespace
from radix_engine.cache.token_run import pack


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ids(count: int, seed: int = 0) -> list[int]:
    """Token ids that differ between seeds from the first one on."""
    return [1000 * seed + index for index in range(count)]


def lease_of(cache: FlatCache, tokens: Iterable[int], namespace: Namespace = DEFAULT) -> FlatLease:
    """Match and lease a prompt."""
    return cache.lease(cache.match(pack(tokens), namespace))


def take(cache: FlatCache, count: int) -> array[int]:
    """Allocate blocks that must be there."""
    blocks = cache.allocate(count)
    assert blocks is not None
    return blocks


def rest(cache: FlatCache, lease: FlatLease, tokens: Sequence[int]) -> tuple[bytes, array[int]]:
    """The run of the full blocks after a lease, and new private blocks for it."""
    size = cache.block_size
    run = tokens[lease.num_tokens : len(tokens) // size * size]
    return pack(run), take(cache, len(run) // size)


def announce(cache: FlatCache, tokens: Sequence[int]) -> FlatLease:
    """Lease what is stored of a prompt and announce its other full blocks."""
    lease = lease_of(cache, tokens)
    assert cache.announce(lease, *rest(cache, lease, tokens))
    return lease


def hold(cache: FlatCache, tokens: Sequence[int], namespace: Namespace = DEFAULT) -> FlatLease:
    """Store a prompt's full blocks and keep them pinned."""
    lease = lease_of(cache, tokens, namespace)
    cache.publish(lease, *rest(cache, lease, tokens))
    return lease


def store(cache: FlatCache, tokens: Sequence[int], namespace: Namespace = DEFAULT) -> array[int]:
    """Store a prompt's full blocks, unpinned; returns them, first token first."""
    lease = hold(cache, tokens, namespace)
    blocks = lease.blocks()
    cache.release(lease)
    return blocks


def stored(cache: FlatCache, tokens: Iterable[int], namespace: Namespace = DEFAULT) -> int:
    """How many of these tokens a longer prompt would find."""
    return cache.match(pack([*tokens, 0]), namespace).num_tokens


def assert_sound(
    cache: FlatCache, leases: Iterable[FlatLease] = (), private: Iterable[array[int]] = ()
) -> None:
    """The full audit, with all live leases and private blocks."""
    assert cache.audit(private, leases) == []
