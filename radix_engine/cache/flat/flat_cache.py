"""The flat prefix cache: what requests do with an index of blocks by hash.

One thread at a time. Every operation costs O(blocks it is about), audit and flush excepted.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Iterable

from radix_engine.cache.block_pool import IN_FLIGHT, OwnershipError
from radix_engine.cache.flat.block_key import HashName, chain
from radix_engine.cache.flat.flat_audit import audit, holdings
from radix_engine.cache.flat.flat_lease import FlatLease, FlatMatch
from radix_engine.cache.flat.flat_reads import FlatReads
from radix_engine.cache.interface import StaleMatch
from radix_engine.cache.ownership import quarantine
from radix_engine.cache.token_run import TOKEN_BYTES

logger = logging.getLogger(__name__)


class FlatCache(FlatReads):
    """A block-hash index over ``num_blocks`` blocks of ``block_size`` tokens; a `PrefixIndex`.

    ``clock`` gives seconds. ``ttl``: seconds a cached block may be idle, counted from the end of
    the last lease on it, before ``expire`` takes it (None: for ever). ``hash_name``: see
    `digest_function`.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        clock: Callable[[], float] = time.monotonic,
        *,
        ttl: float | None = None,
        hash_name: HashName = "sha256",
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1 token, not {block_size}")
        if ttl is not None and not ttl > 0:
            raise ValueError(f"ttl must be more than 0 seconds, or None for no limit; not {ttl}")
        super().__init__(num_blocks, block_size, hash_name)
        self.epoch = 0  # flushes so far
        self._clock = clock
        self._ttl = ttl

    def lease(self, match: FlatMatch, priority: int = 0) -> FlatLease:
        """Pin the matched blocks; a hit ends their idle time. ``priority`` changes nothing here.

        Raises StaleMatch when the index has changed since.
        """
        if match.version != self.version:
            raise StaleMatch(f"match of version {match.version}, the index is at {self.version}")
        self.stored.pin(match.blocks)
        return FlatLease(match.blocks[:], match.key, self.block_size, self.epoch)

    def share(self, lease: FlatLease) -> FlatLease:
        """Another lease on all that a lease covers. Raises OwnershipError where it is released, or
        some of it is in flight, whoever computes it. Cost: O(blocks)."""
        in_flight = any(self.pool.owner_of(block) == IN_FLIGHT for block in lease.held)
        if lease.released or in_flight:
            raise OwnershipError(
                "only what a lease holds, and what is computed, can be leased again"
            )
        self.stored.pin(lease.held)
        return FlatLease(lease.held[:], lease.key, self.block_size, lease.epoch)

    def announce(self, lease: FlatLease, run: bytes, blocks: array[int]) -> bool:
        """Let others find blocks that this step will compute. See `PrefixIndex.announce`.

        False also for a lease that began before a flush. Where a later one of the blocks is stored
        already, the new one has no key: others find the stored one.
        """
        self._check(lease, run, blocks)
        keys = self._keys(lease, run)
        if not keys or keys[0] in self.stored.index:
            return False
        if self.pool.before_quarantined(blocks) < len(blocks):
            return False
        self.stored.announce(blocks, keys)
        lease.announce(blocks, keys)
        self._count_new(keys)
        return True

    def commit(self, lease: FlatLease, payload: bytes = b"") -> None:
        """What the lease announced has been computed; the ``payload`` is not kept. Raises
        OwnershipError where the lease is broken: then it was computed from blocks that hold
        nothing."""
        if lease.announced:
            self._refuse_broken(lease)
            self.pool.commit(lease.held[-lease.announced :])
            lease.announced = 0

    def withdraw(self, lease: FlatLease) -> None:
        """What the lease announced will not be computed: nobody finds it any more, and the lease
        ends before it. What others hold of it is free when the last of them is released.

        Withdraw before any lease of the step is committed: the index does not know who goes on
        from a block, so what a broken lease had committed would stay.
        """
        count = lease.announced
        if not count:
            return
        self.stored.withdraw(lease.take_back())
        self.counters.withdrawn_blocks += count
        self.version += 1

    def publish(
        self, lease: FlatLease, run: bytes, blocks: array[int], payload: bytes = b""
    ) -> array[int]:
        """Hand computed full blocks over; the ``payload`` is not kept. See `PrefixIndex.publish`.

        The blocks returned are fewer where another request has the rest in flight: that may yet be
        withdrawn, and until then the rest stays the caller's. The blocks of a lease that began
        before a flush get no key: they were computed from what the flush disowned.
        """
        self._check(lease, run, blocks)
        if lease.announced:
            raise OwnershipError("commit or withdraw what the lease announced, then publish")
        keys = self._keys(lease, run)
        if keys and self.pool.in_flight_blocks:
            keys = self.stored.before_in_flight(keys)
            blocks = blocks[: len(keys)]
        count = self.pool.before_quarantined(blocks)
        blocks, keys = blocks[:count], keys[:count]
        table, duplicates = self.stored.publish(blocks, keys)
        lease.extend(table, keys)
        self._count_new(keys)
        self.counters.duplicate_blocks += duplicates
        return table

    def release(self, lease: FlatLease) -> None:
        """Give a lease back; what it announced and did not commit is withdrawn first.

        Blocks that nobody else pins enter the free queue, the last one first. A second release
        changes nothing; it is counted and logged.
        """
        if lease.released:
            self.counters.repeated_releases += 1
            logger.warning("a lease of %d tokens was released twice", lease.num_tokens)
            return
        self.withdraw(lease)
        self.stored.unpin(self._order_of_leaving(lease.give_back()), self._clock())

    def allocate(self, count: int) -> array[int] | None:
        """``count`` private blocks, or None (and no change) if there are too few. Free ones go
        first; only what is missing is evicted."""
        missing = count - self.pool.free_blocks
        if missing > len(self.stored.queue):
            return None
        if missing > 0:
            self.evict(missing)
        return self.pool.allocate(count)

    def free(self, blocks: array[int]) -> None:
        """A request gives private blocks back."""
        self.pool.free_private(blocks)

    def evict(self, count: int) -> int:
        """Take up to ``count`` cached blocks that nobody pins, in the queue's order."""
        freed = self._drop(self.stored.queue.take(count))
        self.counters.evicted_blocks += freed
        return freed

    def spare(self, matches: Iterable[FlatMatch]) -> None:
        """Changes nothing: the one queue says both what goes first and what expires, so a block
        that moves back in it would be idle anew."""

    def note_tool_call(self, lease: FlatLease) -> None:
        """Changes nothing: the queue goes by use alone."""

    def expire(self) -> int:
        """Take the cached blocks that have been idle for longer than ``ttl``. Until it is called
        they are found, and a hit makes them new. Cost: O(blocks taken)."""
        if self._ttl is None:
            return 0
        expired = self._drop(self.stored.queue.take_idle(self._clock() - self._ttl))
        self.counters.expired_blocks += expired
        return expired

    def flush(self) -> int:
        """Forget all keys; returns the blocks freed at once.

        Running requests keep what they pin, and it is free when they end. What they compute later
        was computed from it, so it gets no key either: after a flush nobody is served anything
        that goes back to the time before. Cost: O(all blocks).
        """
        freed = self.stored.clear()
        self.epoch += 1
        self.counters.flushes += 1
        self.version += 1
        return freed

    def audit(
        self, private: Iterable[array[int]], leases: Iterable[FlatLease] | None = None
    ) -> list[str]:
        """What is wrong, one line each. Changes nothing. Cost: O(all blocks)."""
        return audit(self.stored, self.block_size, private, leases)

    def quarantine(self, private: Iterable[array[int]]) -> list[str]:
        """Take blocks that have not exactly one owner out of use, for good; what was wrong. Nobody
        finds them any more."""
        problems = quarantine(self.pool, holdings(self.stored, private))
        if problems:
            self.version += 1
            self.stored.give_up(self.pool.quarantined)
        return problems

    def _order_of_leaving(self, held: array[int]) -> Iterable[int]:
        """The order in which a lease's blocks enter the queue, and leave it."""
        return reversed(held)

    def _keys(self, lease: FlatLease, run: bytes) -> list[bytes]:
        """The keys of the blocks after a lease; none for one that began before a flush."""
        if lease.epoch != self.epoch:
            return []
        return list(chain(self._digest, lease.key, run, self._block_bytes, len(run)))

    def _count_new(self, keys: list[bytes]) -> None:
        if keys:
            self.version += 1  # longer matches are possible

    def _drop(self, blocks: array[int]) -> int:
        if blocks:
            self.version += 1
        return self.stored.drop(blocks)

    def _check(self, lease: FlatLease, run: bytes, blocks: array[int]) -> None:
        if lease.released:
            raise OwnershipError("a released lease cannot store blocks")
        self._refuse_broken(lease)
        if len(run) != len(blocks) * self._block_bytes:
            raise ValueError(
                f"{len(run) // TOKEN_BYTES} tokens do not fill {len(blocks)} blocks "
                f"of {self.block_size}"
            )

    def _refuse_broken(self, lease: FlatLease) -> None:
        if self.is_broken(lease):
            raise OwnershipError(
                "the lease holds blocks that were withdrawn; release it and start again"
            )
