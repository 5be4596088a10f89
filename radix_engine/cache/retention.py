"""Retained prefixes: kept for a time, or until released, whatever the eviction rule would choose.

A retained leaf is evicted only when nothing else can be: a request that needs the memory gets it in
the end, so a retention cannot keep anybody from being admitted. All together may cover a share of
the pool, and be as many as that share has blocks; what would go beyond is refused. The share is for
all tenants together, so a refusal tells that others retain something, but not how much.
"""

from __future__ import annotations

from sortedcontainers import SortedDict

from radix_engine.cache.leasing import path_to
from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node
from radix_engine.cache.token_run import TOKEN_BYTES
from radix_engine.cache.tree import Tree
from radix_engine.cache.walk import find

# Retentions that one call of ``expire`` ends, so that no single call takes long.
_MOST_ENDED = 64


class RetentionRefused(ValueError):
    """A prefix cannot be retained; the message says why and what to do."""


class Retention:
    """A retained prefix, until ``until`` in the cache clock's seconds (None: until it is released).

    ``lost`` where eviction had to take the last of it, or a flush did.
    """

    __slots__ = ("_block_size", "lost", "node", "number", "released", "until")

    def __init__(self, number: int, node: Node, block_size: int, until: float | None) -> None:
        self.number = number
        self.node = node
        self.until = until
        self.released = False
        self.lost = False
        self._block_size = block_size

    @property
    def ended(self) -> bool:
        """Whether it keeps nothing any more."""
        return self.released or self.lost

    @property
    def num_tokens(self) -> int:
        """Tokens from the prompt's first on that it still keeps: fewer than were asked for where
        they were not all stored, or eviction had to take some; 0 once it has ended."""
        return 0 if self.ended else self.node.start + len(self.node.blocks) * self._block_size


class Retentions:
    """All retentions of a tree. ``most_blocks``: what they may cover together."""

    def __init__(self, tree: Tree, most_blocks: int) -> None:
        self.most_blocks = most_blocks
        self._tree = tree
        self._by_node: dict[Node, set[Retention]] = {}
        self._by_time: SortedDict[tuple[float, int], Retention] = SortedDict()
        self._number = self._count = 0
        tree.on_retained_emptied = self._emptied

    def __len__(self) -> int:
        return self._count

    def retain(
        self, tokens: bytes, seconds: float | None, namespace: Namespace, public_bytes: int
    ) -> Retention:
        """Retain what is stored and computed of a prefix. Raises RetentionRefused, and changes
        nothing then."""
        _check_seconds(seconds)
        tree = self._tree
        padded = tokens + bytes(TOKEN_BYTES)  # so that the last one may be retained, too
        mode = CacheMode.READ_ONLY
        match = find(tree, padded, namespace, public_bytes, mode, partial_blocks=False)
        if not match.num_tokens:
            raise RetentionRefused("nothing of this prefix is stored; compute it first")
        end, inside = _computed_part(match.node, match.inside_bytes, tree.block_bytes)
        if end.parent is None:
            raise RetentionRefused("nothing of this prefix is computed yet; compute it first")
        self._check_cap(end, inside // tree.block_bytes)
        if inside < len(end.run):
            end = tree.split(end, inside)
            tree.version += 1
        until = None if seconds is None else tree.clock() + seconds
        self._number += 1
        self._count += 1
        retention = Retention(self._number, end, tree.block_size, until)
        self._change(end, 1)
        self._by_node.setdefault(end, set()).add(retention)
        if until is not None:
            self._by_time[(until, retention.number)] = retention
        return retention

    def _check_cap(self, end: Node, blocks: int) -> None:
        """Refuse a path that ends after so many blocks of a node and does not fit any more. Cost:
        O(depth)."""
        size = self._tree.block_size
        above = path_to(end)[1:]
        more = sum(len(node.blocks) for node in above if not node.retained)
        more += 0 if end.retained else blocks
        if self._tree.retained_blocks + more > self.most_blocks:
            asked = (sum(len(node.blocks) for node in above) + blocks) * size
            raise RetentionRefused(
                f"retaining {asked} tokens goes beyond what the limit of {self.most_blocks * size} "
                "leaves; release a retention, wait for one to end, or retain less"
            )
        if self._count >= self.most_blocks:
            raise RetentionRefused(
                f"there may be {self.most_blocks} retentions at most; release one, refresh one "
                "instead, or wait for one to end"
            )

    def refresh(self, retention: Retention, seconds: float) -> None:
        """Let it last ``seconds`` from now; nothing changes where it has ended. Raises
        RetentionRefused for a time that is none."""
        _check_seconds(seconds)
        if retention.ended:
            return
        self._forget_time(retention)
        retention.until = self._tree.clock() + seconds
        self._by_time[(retention.until, retention.number)] = retention

    def release(self, retention: Retention) -> None:
        """End it; again is a no-op. Cost: O(depth)."""
        if retention.ended:
            retention.released = True
            return
        retention.released = True
        self._count -= 1
        self._forget_time(retention)
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
        self._tree.retained_blocks = 0

    def until(self, node: Node) -> float | None:
        """When the last retention that ends at this node ends; None for never, or for none."""
        times = [held.until for held in self._by_node.get(node, ())]
        finite = [time for time in times if time is not None]
        return max(finite) if times and len(finite) == len(times) else None

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
                tree.retained_blocks += len(node.blocks)
            elif not node.retained:
                tree.retained_blocks -= len(node.blocks)
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
                self._count -= 1
                self._forget_time(retention)
                continue
            retention.node = above
            self._by_node.setdefault(above, set()).add(retention)

    def _leave_node(self, retention: Retention) -> None:
        held = self._by_node[retention.node]
        held.discard(retention)
        if not held:
            del self._by_node[retention.node]

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


def _check_seconds(seconds: float | None) -> None:
    if seconds is not None and not seconds > 0:
        raise RetentionRefused(f"seconds must be greater than 0, not {seconds}")
