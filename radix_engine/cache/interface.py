"""What the scheduler and the engine need of a prefix cache: the radix tree and the flat index both
have it.

A match and a lease are opaque to the caller, apart from what `MatchView` and `LeaseView` name.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from radix_engine.cache.block_pool import BlockPool
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.reason import MatchEnd


class StaleMatch(RuntimeError):
    """The index has changed since this match was made: match again."""


@dataclass(slots=True)
class CacheCounters:
    """Events since the start. ``withdrawn_blocks`` were announced and never computed."""

    evicted_blocks: int = 0
    expired_blocks: int = 0
    duplicate_blocks: int = 0
    withdrawn_blocks: int = 0
    repeated_releases: int = 0
    flushes: int = 0


class MatchView(Protocol):
    """How far an index covers a prompt; read-only, pins nothing.

    ``num_tokens`` are covered, never the prompt's last one. The last ``copy_rows`` of them lie in
    block ``copy_source``, which belongs to others: the requester must copy these rows into the same
    places of its own first block before its first step computes anything. Good for as long as the
    index's ``version`` stays.
    """

    @property
    def num_tokens(self) -> int: ...
    @property
    def copy_rows(self) -> int: ...
    @property
    def copy_source(self) -> int: ...
    @property
    def version(self) -> int: ...


class LeaseView(Protocol):
    """The receipt for pinned blocks: those of a request's first ``num_tokens`` tokens, whole
    blocks, which nobody evicts until it is released."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def in_flight_tokens(self) -> int:
        """The last of these: announced, and not computed yet."""
        ...

    @property
    def released(self) -> bool: ...

    def blocks(self) -> array[int]:
        """The leased blocks, first token first."""
        ...


M = TypeVar("M", bound=MatchView)
L = TypeVar("L", bound=LeaseView)


class PrefixIndex(Protocol[M, L]):
    """A prefix cache over a block pool. One thread at a time.

    A step's way: ``match``, ``lease``, ``allocate``, and ``announce`` what the step will compute;
    then either ``commit`` (it was computed) or ``withdraw`` (it was not); ``publish`` what became
    full without having been announced; ``release`` at the end.
    """

    @property
    def block_size(self) -> int: ...
    @property
    def pool(self) -> BlockPool: ...
    @property
    def counters(self) -> CacheCounters: ...
    @property
    def version(self) -> int:
        """Grows with every change that can make a match wrong."""
        ...

    @property
    def evictable_blocks(self) -> int: ...
    @property
    def available_blocks(self) -> int: ...

    def match(
        self,
        tokens: bytes,
        namespace: Namespace = ...,
        mode: CacheMode = ...,
        *,
        near: M | None = None,
        shared_tokens: int = 0,
        rows: bool = True,
        most_tokens: int | None = None,
    ) -> M:
        """How far the index covers this run of int32 token ids. Changes nothing.

        ``near``: an earlier match, however old, of a prompt of the same namespace that has its
        first ``shared_tokens`` in common with this one: may save comparing them again. ``rows``
        False: whole blocks only. ``most_tokens``: the request computes all after these itself.
        """
        ...

    def payload(self, match: M, tokens: bytes) -> bytes:
        """What is kept with the tokens that a match of this run covers, 4 bytes each, and with as
        many after them as their block goes on alike; `MISSING_PAYLOAD` where nothing is."""
        ...

    def account(self, match: M, tokens: bytes) -> MatchEnd:
        """Why the match ended where it did; counts it. To be called once for a request, at its
        first admission, before ``lease``."""
        ...

    def unpinned_blocks(self, match: M) -> int:
        """Matched blocks that leasing this match takes from the evictable ones."""
        ...

    def lease(self, match: M, priority: int = 0) -> L:
        """Pin the matched whole blocks. Raises StaleMatch."""
        ...

    def share(self, lease: L) -> L:
        """Another lease on all that a lease covers, which must be computed. Raises
        OwnershipError."""
        ...

    def sole_tokens(self, lease: L) -> int:
        """Tokens that this lease alone keeps from being evicted."""
        ...

    def announce(self, lease: L, run: bytes, blocks: array[int]) -> bool:
        """Let others of the same step attach to blocks that this step will compute: ``run`` are the
        tokens right after the lease's, ``blocks`` the private blocks they will be in.

        False, and nothing changes, where somebody else stores the first of them already, or the
        lease is from before a flush.
        """
        ...

    def commit(self, lease: L, payload: bytes = b"") -> None:
        """What the lease announced has been computed. Within a step, after every withdrawal, and
        for the owner of a prefix before those who attached to it. ``payload``: 4 bytes to keep with
        each of these tokens, or nothing."""
        ...

    def withdraw(self, lease: L) -> None:
        """What the lease announced will not be computed: it leaves the index. Leases that others
        took on it are ``broken``; their requests must start again."""
        ...

    def is_broken(self, lease: L) -> bool:
        """Whether the lease reaches into something that was withdrawn."""
        ...

    def publish(self, lease: L, run: bytes, blocks: array[int], payload: bytes = b"") -> array[int]:
        """Hand computed full blocks over; ``run`` are the tokens right after the lease's, and
        ``payload`` 4 bytes to keep with each, or nothing.

        Returns the blocks that hold these tokens from now on; duplicates are freed. They are fewer
        where another request has the rest in flight: these stay the caller's.
        """
        ...

    def release(self, lease: L) -> None:
        """Give a lease back, once; again is a no-op that is counted and logged. What it announced
        is withdrawn."""
        ...

    def allocate(self, count: int) -> array[int] | None:
        """Private blocks, evicting what is missing; None (and no change) if there are too few."""
        ...

    def free(self, blocks: array[int]) -> None:
        """A request gives private blocks back."""
        ...

    def evict(self, count: int) -> int:
        """Take up to ``count`` unpinned blocks back; how many were freed."""
        ...

    def spare(self, matches: Iterable[M]) -> None:
        """Until the next call, what these matches cover is evicted only after everything else that
        nobody retains, where the index can tell. Stale matches are left out."""
        ...

    def note_tool_call(self, lease: L) -> None:
        """The reply of a request calls a tool: told before its lease is released, or after. What an
        eviction rule may go by, where the index has any."""
        ...

    def expire(self) -> int:
        """Take back what has been idle for longer than the time to live; how many blocks."""
        ...

    def flush(self) -> int:
        """Start empty; running requests keep what they pin. Returns the blocks freed at once."""
        ...

    def audit(self, private: Iterable[array[int]], leases: Iterable[L] | None = None) -> list[str]:
        """What is wrong, one line each; ``private``: the blocks of each request's own tail."""
        ...

    def quarantine(self, private: Iterable[array[int]]) -> list[str]:
        """Take blocks that have not exactly one owner out of use; what was wrong, one line each."""
        ...
