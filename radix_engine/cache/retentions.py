"""Retained prefixes: kept for a time, or until released, whatever the eviction rule would choose.

A retained leaf is evicted only when nothing else can be: a request that needs the memory gets it in
the end, so a retention cannot keep anybody from being admitted. All together may cover a share of
the pool, and be as many as that share has blocks; what would go beyond is refused. So is what goes
beyond the share of one tenant, which counts its own prefixes: not what is public. A refusal may
tell that others retain something, but not how much.

The time of a retention begins anew with each request of its namespace that is served all of it.
"""

from __future__ import annotations

from collections import Counter

from sortedcontainers import SortedDict

from radix_engine.cache.lease import Match
from radix_engine.cache.leasing import path_to
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node
from radix_engine.cache.retained_count import by_tenant
from radix_engine.cache.retention import Retention, RetentionRefused, check_seconds, not_stored
from radix_engine.cache.token_run import TOKEN_BYTES
from radix_engine.cache.tree import Tree
from radix_engine.cache.walk import find

# Retentions that one call of ``expire`` ends, so that no single call takes long.
_MOST_ENDED = 64


class Retentions:
    """All retentions of a tree. ``most_blocks``: what they may cover together, and
    ``most_of_tenant``: of one tenant's prefixes."""

    def __init__(self, tree: Tree, most_blocks: int, most_of_tenant: int) -> None:
        self.most_blocks = most_blocks
        self.most_of_tenant = min(most_of_tenant, most_blocks)
        self._tree = tree
        self._by_node: dict[Node, set[Retention]] = {}
        self._by_time: SortedDict[tuple[float, int], Retention] = SortedDict()
        self._number = self._count = 0
        self._count_of: Counter[str | None] = Counter()  # by tenant
        tree.on_retained_emptied = self._emptied

    def __len__(self) -> int:
        return self._count

    def retain(
        self, tokens: bytes, seconds: float | None, namespace: Namespace, public_bytes: int
    ) -> Retention:
        """Retain what is stored and computed of a prefix. Raises RetentionRefused, and changes
        nothing then."""
        check_seconds(seconds)
        tree = self._tree
        padded = tokens + bytes(TOKEN_BYTES)  # so that the last one may be retained, too
        mode = CacheMode.READ_ONLY
        match = find(tree, padded, namespace, public_bytes, mode, partial_blocks=False)
        if not match.num_tokens:
            raise not_stored("stored")
        end, inside = _computed_part(match.node, match.inside_bytes, tree.block_bytes)
        if end.parent is None:
            raise not_stored("computed yet")
        self._check_caps(end, inside // tree.block_bytes)
        self._check_count(namespace.tenant)
        if inside < len(end.run):
            end = tree.split(end, inside)
            tree.version += 1
        until = None if seconds is None else tree.clock() + seconds
        self._number += 1
        self._count += 1
        self._count_of[namespace.tenant] += 1
        retention = Retention(self._number, end, tree.block_size, namespace, seconds, until)
        self._change(end, 1)
        self._by_node.setdefault(end, set()).add(retention)
        if until is not None:
            self._by_time[(until, retention.number)] = retention
        return retention

    def _check_caps(self, end: Node, blocks: int) -> None:
        """Refuse a path that ends after so many blocks of a node and does not fit any more. Cost:
        O(depth)."""
        path = [(end, blocks), *((node, len(node.blocks)) for node in path_to(end)[1:])]
        more = by_tenant((node, 0 if node.retained else count) for node, count in path)
        retained, size = self._tree.retained, self._tree.block_size
        asked = sum(count for _, count in path) * size
        for tenant, blocks_more in more.items():
            if tenant is not None and retained.of[tenant] + blocks_more > self.most_of_tenant:
                raise RetentionRefused(
                    "limit",
                    f"retaining {asked} tokens goes beyond the limit of "
                    f"{self.most_of_tenant * size} for a tenant; release a retention, wait for "
                    "one to end, or retain less",
                )
        if retained.blocks + more.total() > self.most_blocks:
            raise RetentionRefused(
                "limit",
                f"retaining {asked} tokens goes beyond what the limit of {self.most_blocks * size} "
                "leaves; release a retention, wait for one to end, or retain less",
            )

    def _check_count(self, tenant: str | None) -> None:
        """Refuse one more where there are as many as may be."""
        if self._count >= self.most_blocks:
            most, whose = self.most_blocks, ""
        elif tenant is not None and self._count_of[tenant] >= self.most_of_tenant:
            most, whose = self.most_of_tenant, " of a tenant"
        else:
            return
        raise RetentionRefused(
            "limit",
            f"there may be {most} retentions{whose} at most; release one, refresh one instead, or "
            "wait for one to end",
        )

    def refresh(self, retention: Retention, seconds: float) -> None:
        """Let it last ``seconds`` from now; nothing changes where it has ended. Raises
        RetentionRefused for a time that is none."""
        check_seconds(seconds)
        if retention.ended:
            return
        self._forget_time(retention)
        retention.seconds, retention.until = seconds, self._tree.clock() + seconds
        self._by_time[(retention.until, retention.number)] = retention

    def read(self, match: Match) -> None:
        """A request is served this: what is retained of it for a time is so from now on. Cost:
        O(depth)."""
        node, inside = match.node, match.inside_bytes
        if inside < len(node.blocks) * self._tree.block_bytes and node.parent is not None:
            node = node.parent
        for above in path_to(node):
            if not above.retained:
                continue
            for retention in self._by_node.get(above, ()):
                if retention.seconds is not None and retention.namespace == match.namespace:
                    self.refresh(retention, retention.seconds)

    def within(self, retention: Retention) -> list[Retention]:
        """The others that end somewhere in a retained prefix. Cost: O(depth)."""
        return [
            held
            for node in path_to(retention.node)
            for held in self._by_node.get(node, ())
            if held is not retention
        ]

    def release(self, retention: Retention) -> None:
        """End it; again is a no-op. Cost: O(depth)."""
        if retention.ended:
            retention.released = True
            return
        retention.released = True
        self._forget(retention)
        self._leave_node(retention)
        self._change(retention.node, -1)

    def expire(self, now: float) -> int:
        """End those whose time has come, up to 64 a call; how many."""
        for ended in range(_MOST_ENDED):
            if not self._by_time or self._by_time.peekitem(0)[0][0] > now:
                return ended
            self.release(self._by_time.peekitem(0)[1])
        return _MOST_ENDED

    def clear(self) -> None:
        """End all, since the tree they were in is flushed."""
        for held in self._by_node.values():
            for retention in held:
                retention.released = retention.lost = True
        self._by_node.clear()
        self._by_time.clear()
        self._count = 0
        self._count_of.clear()
        self._tree.retained.clear()

    def until(self, node: Node) -> float | None:
        """When the last retention that ends at this node ends; None for never, or for none."""
        times = [held.until for held in self._by_node.get(node, ())]
        finite = [time for time in times if time is not None]
        return max(finite) if times and len(finite) == len(times) else None

    def seconds_left(self, retention: Retention) -> float | None:
        """How long a retention goes on if nobody reads it; None where it has no end."""
        until = retention.until
        return None if until is None else max(0.0, until - self._tree.clock())

    def held(self) -> list[Retention]:
        """All of them, for audits and lists."""
        return [retention for held in self._by_node.values() for retention in held]

    def _change(self, end: Node, by: int) -> None:
        tree, now = self._tree, self._tree.clock()
        for node in path_to(end):
            was_leaf = tree.is_leaf(node)
            if was_leaf:
                tree.leaves.discard(node)
            before = node.retained
            node.retained += by
            if not before:
                tree.retained.change(node, len(node.blocks))
            elif not node.retained:
                tree.retained.change(node, -len(node.blocks))
            if was_leaf:
                tree.leaves.add(node, now)

    def _emptied(self, leaf: Node) -> None:
        """The last block of a retained leaf is gone: its retentions end further up, if anywhere."""
        leaf.retained = 0
        held = self._by_node.pop(leaf, set())
        above = leaf.parent
        while above is not None and above.parent is not None and not above.run:
            above.retained -= len(held)  # a namespace alone is nothing to keep
            above = above.parent
        for retention in held:
            if above is None or above.parent is None:
                retention.lost = True
                self._forget(retention)
                continue
            retention.node = above
            self._by_node.setdefault(above, set()).add(retention)

    def _leave_node(self, retention: Retention) -> None:
        held = self._by_node[retention.node]
        held.discard(retention)
        if not held:
            del self._by_node[retention.node]

    def _forget(self, retention: Retention) -> None:
        """It has ended: it does not count any more."""
        tenant = retention.namespace.tenant
        self._count -= 1
        self._count_of[tenant] -= 1
        if not self._count_of[tenant]:
            del self._count_of[tenant]
        self._forget_time(retention)

    def _forget_time(self, retention: Retention) -> None:
        if retention.until is not None:
            self._by_time.pop((retention.until, retention.number), None)


def _computed_part(node: Node, inside: int, block_bytes: int) -> tuple[Node, int]:
    """Where the computed part of a match ends, in bytes of a node's run: what is in flight may yet
    be withdrawn, and a namespace alone holds nothing."""
    while node.parent is not None:
        inside = min(inside, (len(node.blocks) - node.in_flight) * block_bytes)
        if inside:
            break
        node = node.parent
        inside = len(node.run)
    return node, inside
