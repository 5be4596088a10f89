"""What can be asked of the flat index, and changes nothing in it."""

from __future__ import annotations

from radix_engine.cache.block_pool import BlockPool
from radix_engine.cache.flat.block_key import HashName, chain, chain_start, digest_function
from radix_engine.cache.flat.flat_lease import FlatLease, FlatMatch
from radix_engine.cache.flat.stored_blocks import StoredBlocks
from radix_engine.cache.interface import CacheCounters
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import DEFAULT, Namespace
from radix_engine.cache.reason import MatchEnd, Reason
from radix_engine.cache.token_run import TOKEN_BYTES, token_array


class FlatReads:
    """The index, what is counted along with it, and matches."""

    def __init__(self, num_blocks: int, block_size: int, hash_name: HashName) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.counters = CacheCounters()
        self.version = 0
        self.stored = StoredBlocks(self.pool)
        self._digest = digest_function(hash_name)
        self._block_bytes = block_size * TOKEN_BYTES

    @property
    def evictable_blocks(self) -> int:
        """Cached blocks that no lease pins."""
        return len(self.stored.queue)

    @property
    def available_blocks(self) -> int:
        """What ``allocate`` can hand out: free blocks and those it may evict."""
        return self.pool.free_blocks + len(self.stored.queue)

    def match(
        self,
        tokens: bytes,
        namespace: Namespace = DEFAULT,
        mode: CacheMode = CacheMode.DEFAULT,
        *,
        near: FlatMatch | None = None,
        shared_tokens: int = 0,
        rows: bool = True,
        most_tokens: int | None = None,
    ) -> FlatMatch:
        """The stored blocks this prompt begins with, short of its last token, and not beyond
        ``most_tokens``. Changes nothing.

        Cost: one digest and one look-up a block, up to the first that is not stored. Nothing is
        kept, so matching again hashes again, also where there is an earlier match ``near``.
        """
        key = chain_start(namespace)
        blocks = token_array()
        if mode.reads:
            find = self.stored.index.get
            step, end = self._block_bytes, len(tokens) - TOKEN_BYTES
            if most_tokens is not None:
                end = min(end, most_tokens * TOKEN_BYTES)
            for block_key in chain(self._digest, key, tokens, step, end):
                block = find(block_key)
                if block is None:
                    break
                blocks.append(block)
                key = block_key
        return FlatMatch(blocks, key, len(blocks) * self.block_size, self.version, mode)

    def payload(self, match: FlatMatch, tokens: bytes) -> bytes:
        """Nothing: this index keeps blocks alone."""
        return b""

    def account(self, match: FlatMatch, tokens: bytes) -> MatchEnd:
        """BYPASSED, FULL where every block that may hit did and there is one, else UNKNOWN: of what
        is not stored the index knows nothing."""
        if not match.mode.reads:
            return MatchEnd(Reason.BYPASSED, match.num_tokens)
        may_hit = max(0, len(tokens) - TOKEN_BYTES) // self._block_bytes
        full = 0 < may_hit == len(match.blocks)
        return MatchEnd(Reason.FULL if full else Reason.UNKNOWN, match.num_tokens)

    def unpinned_blocks(self, match: FlatMatch) -> int:
        """Matched blocks that leasing this match takes out of the free queue."""
        pins = self.stored.pins
        return sum(not pins[block] for block in match.blocks)

    def sole_tokens(self, lease: FlatLease) -> int:
        """Tokens in blocks that this lease alone pins. Cost: O(blocks)."""
        pins = self.stored.pins
        return self.block_size * sum(pins[block] == 1 for block in lease.held)

    def is_broken(self, lease: FlatLease) -> bool:
        """Whether the lease holds a block that was withdrawn. O(1) while none is held by anybody,
        else O(blocks of the lease)."""
        withdrawn = self.stored.withdrawn
        return bool(withdrawn) and not withdrawn.isdisjoint(lease.held)
