"""The radix prefix cache: which blocks hold which prefixes, who uses them, and what goes first.

Who owns a request's tokens at any moment::

    |  leased from the tree   |  computed by this request, published   |  private tail  |
    0                   cached tokens                          lease.num_tokens    num_computed
       shared, read-only            shared, read-only             written by it alone

The cache hands blocks out (``allocate``), takes computed ones over (``publish``), pins paths for
requests (``lease``) and takes unpinned ones back when the pool runs dry. It knows no tensor: a
block is a number. One thread at a time. What it does is in the modules beside this one; this is the
door to them.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable

from radix_engine.cache import evicting, flushing, in_flight, leasing, sparing, storing
from radix_engine.cache.audit import audit, holdings, walk
from radix_engine.cache.cache_wishes import CacheWishes
from radix_engine.cache.eviction import EvictionRule, make_rule
from radix_engine.cache.explain import explain, record_reuse
from radix_engine.cache.lease import Lease, Match
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import DEFAULT, Namespace
from radix_engine.cache.ownership import quarantine
from radix_engine.cache.payload_reading import payload_along
from radix_engine.cache.reason import MatchEnd, Reason
from radix_engine.cache.tree import CURVE_SHARES, Tree
from radix_engine.cache.walk import find, find_nothing


class PrefixCache(CacheWishes):
    """A radix tree over ``num_blocks`` blocks of ``block_size`` tokens.

    ``eviction``: lru, lfu, slru, fifo, priority or agent, or a rule of one's own.
    ``partial_blocks``: a match ends at the exact token, and names rows of a stored block to copy.
    ``ttl``: seconds after which an idle run leaves (None: never). ``ghost_blocks``: how many
    evicted blocks' tokens stay known (None: three times the pool). ``most_retained``: the share of
    the pool that retentions may cover, ``most_retained_each``: those of one tenant. ``events``:
    compute block hashes and tell subscribers. ``clock`` gives seconds, for ages and times; the
    order of accesses uses a counter.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        clock: Callable[[], float] = time.monotonic,
        *,
        eviction: str | EvictionRule = "lru",
        partial_blocks: bool = True,
        ttl: float | None = None,
        ghost_blocks: int | None = None,
        most_retained: float = 0.25,
        most_retained_each: float = 0.125,
        events: bool = False,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1 token, not {block_size}")
        if ttl is not None and not ttl > 0:
            raise ValueError(f"ttl must be greater than 0 seconds, not {ttl}")
        rule = make_rule(eviction) if isinstance(eviction, str) else eviction
        ghosts = 3 * num_blocks if ghost_blocks is None else ghost_blocks
        super().__init__(
            Tree(num_blocks, block_size, clock, rule, ghosts, by_age=ttl is not None),
            int(num_blocks * most_retained),
            int(num_blocks * most_retained_each),
            events=events,
        )
        self.partial_blocks = partial_blocks
        self.ttl = ttl
        self.ends: Counter[Reason] = Counter()  # requests by why their match ended

    def match(
        self,
        tokens: bytes,
        namespace: Namespace = DEFAULT,
        mode: CacheMode = CacheMode.DEFAULT,
        *,
        near: Match | None = None,
        shared_tokens: int = 0,
        rows: bool = True,
        most_tokens: int | None = None,
    ) -> Match:
        """How far the tree covers this run, short of its last token. Changes nothing.

        ``near``: an earlier match, however old, of a prompt of the same namespace that has its
        first ``shared_tokens`` in common with this one; what both cover is not compared again.
        ``rows`` False leaves partial blocks out. ``most_tokens``: the match covers no more than
        these, since the request computes the rest itself. Cost: one look-up and one compare an
        edge, O(tokens) bytes compared, and O(log children) at the end for the partial block.
        """
        if not mode.reads:
            return find_nothing(self._tree, tokens, namespace, mode)
        public = self.public.covered_bytes(tokens, namespace) if self.public else 0
        return find(
            self._tree,
            tokens,
            namespace,
            public,
            mode,
            partial_blocks=rows and self.partial_blocks,
            near=near,
            shared_tokens=shared_tokens,
            most_tokens=most_tokens,
        )

    def payload(self, match: Match, tokens: bytes) -> bytes:
        """The payload of the tokens that a match of this run covers, 4 bytes each, and of as many
        after them as their block goes on alike, the last one included; not-a-number where none was
        given. Good for as long as the match. Cost: O(tokens), and O(log children) at the end.
        """
        return payload_along(self._tree, match, tokens)

    def account(self, match: Match, tokens: bytes) -> MatchEnd:
        """Why the match ended where it did; counts it, once a request, before its lease."""
        end = explain(self._tree, match, tokens, partial_blocks=self.partial_blocks)
        self.ends[end.reason] += 1
        record_reuse(self._tree, match)
        if self.retentions:
            self.retentions.read(match)
        return end

    def explain(self, match: Match, tokens: bytes) -> MatchEnd:
        """Why the match ended where it did; counts nothing."""
        return explain(self._tree, match, tokens, partial_blocks=self.partial_blocks)

    def hit_rate_curve(self) -> dict[float, float]:
        """LRU's share of prompt tokens served, in whole blocks, by multiples of this memory.

        From the recency of real hits (less memory) and of hits on ghosts (more); for all requests
        accounted since the start. Exact for one request at a time and for as far back as ghosts
        reach.
        """
        return dict(zip(CURVE_SHARES, self._tree.curve.hit_rates(), strict=True))

    def unpinned_blocks(self, match: Match) -> int:
        """Matched blocks that nobody pins yet: what leasing this match takes from the evictable
        ones.

        Cost: the depth down to the first pinned node.
        """
        return leasing.unpinned_tokens(match) // self.block_size

    def lease(self, match: Match, priority: int = 0) -> Lease:
        """Pin the matched path (splitting the edge it ends in).

        ``priority``, from 0, is for the eviction rule of that name. Raises StaleMatch when the tree
        has changed since. Cost: O(depth), and one copy when it splits.
        """
        return leasing.take(self._tree, match, priority)

    def share(self, lease: Lease) -> Lease:
        """Another lease on all that a lease covers. Raises OwnershipError where it is released, or
        some of it is in flight, whoever computes it. Cost: O(depth)."""
        return leasing.take_again(self._tree, lease)

    def sole_tokens(self, lease: Lease) -> int:
        """Tokens that this lease alone keeps from being evicted. Cost: O(depth)."""
        return leasing.sole_tokens(lease)

    def publish(
        self, lease: Lease, run: bytes, blocks: array[int], payload: bytes = b""
    ) -> array[int]:
        """Hand computed full blocks to the tree: ``run`` are the tokens right after the lease's.

        Returns the blocks that hold these tokens from now on; the caller's block table must take
        them over. They differ from ``blocks`` where another request published the same tokens
        first; the caller's duplicates of those are then free. They are fewer than ``blocks`` where
        another request has the rest in flight; then those are still the caller's. The lease covers
        the published tokens afterwards. ``payload``: 4 bytes a token to keep with the run; what was
        given for a stored token before stays. Cost: O(tokens of the run).
        """
        return storing.publish(self._tree, lease, run, blocks, payload)

    def announce(self, lease: Lease, run: bytes, blocks: array[int]) -> bool:
        """Store blocks that the coming step will compute, so that others of that step attach.

        False, and nothing changes, where the first of them is stored already, or the run crosses
        the end of a public path. Then ``commit`` or ``withdraw``. Cost: O(tokens of the run).
        """
        return storing.announce(self._tree, lease, run, blocks)

    def commit(self, lease: Lease, payload: bytes = b"") -> None:
        """What the lease announced has been computed. ``payload``: 4 bytes a token for all of it,
        as in ``publish``."""
        in_flight.commit(self._tree, lease, payload)

    def withdraw(self, lease: Lease) -> None:
        """What the lease announced will not be computed; leases of others on it are broken."""
        in_flight.withdraw(self._tree, lease)

    def is_broken(self, lease: Lease) -> bool:
        """Whether the lease reaches into something withdrawn: its request must start again.

        Cost: O(depth) where there are detached trees, else constant.
        """
        return bool(self._tree.detached) and leasing.top_of(lease.node) is not lease.root

    def release(self, lease: Lease) -> None:
        """Give a leased path back; its blocks stay in the tree until they are evicted.

        What it announced is withdrawn. A second release of the same lease changes nothing; it is
        counted and logged. Cost: O(depth).
        """
        in_flight.release(self._tree, lease)

    def allocate(self, count: int) -> array[int] | None:
        """``count`` blocks for a request's private tail, or None (and no change) if there are too
        few.

        Free blocks go first; only what is missing is evicted.
        """
        return evicting.allocate(self._tree, count)

    def free(self, blocks: array[int]) -> None:
        """A request gives blocks of its private tail back."""
        self._tree.pool.free_private(blocks)

    def evict(self, count: int) -> int:
        """Take up to ``count`` unpinned blocks back, the rule's first leaf first, from its tail.

        Returns how many were freed. Cost: O(log leaves) a leaf at most.
        """
        return evicting.evict(self._tree, count)

    def spare(self, matches: Iterable[Match]) -> None:
        """Until the next call, evict what these matches cover only after all else that nobody
        retains. What was spared before is so no longer, unless named again.

        It counts by nodes: the rest of the node that a match ends in is spared with it. Stale
        matches are left out, rows to copy do not count, and nothing lasts longer for ``expire``.
        Cost: O(matches), and O(log leaves) for each leaf that begins or ceases to be spared.
        """
        sparing.spare(self._tree, matches)

    def expire(self) -> int:
        """Take back what has been idle for longer than ``ttl``, end retentions whose time is over,
        and forget the oldest ghosts where the budget is all but used up, so that the next evictions
        need not.

        A bounded piece of work: to be called at every step. Returns the blocks freed.
        """
        self.retentions.expire(self._tree.clock())
        self._tree.ghosts.make_room()
        return 0 if self.ttl is None else evicting.expire(self._tree, self.ttl)

    def flush(self) -> int:
        """Start with an empty tree; returns the blocks freed at once.

        Running requests are untouched: what they pin stays theirs in a detached tree, out of reach
        of new ones, and comes back as their leases end. Retentions end. Cost: O(nodes and blocks).
        """
        self.retentions.clear()
        return flushing.flush(self._tree)

    def audit(
        self, private: Iterable[array[int]], leases: Iterable[Lease] | None = None
    ) -> list[str]:
        """What is wrong, one line each; empty when all is well. Cost: O(blocks and nodes)."""
        return audit(self._tree, private, leases, self.retentions.held())

    def quarantine(self, private: Iterable[array[int]]) -> list[str]:
        """Take blocks that have not exactly one owner out of use, for good; what was wrong with
        them, one line each. Cost: as ``audit``.

        Whoever reads such a block goes on; no match covers it from now on, and what is stored from
        there on leaves as soon as nobody pins it. Tokens whose block it is are not published.
        """
        problems = quarantine(self._tree.pool, holdings(self._tree, private))
        if problems:
            self._tree.version += 1
            evicting.take_out_of_use(self._tree, walk(self._tree.root))
        return problems
