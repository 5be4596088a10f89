"""Retained prefixes: kept for a time, or until released, whatever the eviction rule would choose.

A retained leaf is evicted only when nothing else can be: a request that needs the memory gets it in
the end, so a retention cannot keep anybody from being admitted. All together may cover a share of
the pool; what would go beyond is refused.
"""

from __future__ import annotations

from sortedcontainers import SortedDict

from radix_engine.cache.mode import CacheMode
from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node
from radix_engine.cache.token_run import TOKEN_BYTES
from radix_engine.cache.tree import Tree
from radix_engine.cache.walk import find


class RetentionRefused(ValueError):
    """A prefix cannot be retained; the message says why and what to do."""


class Retention:
    """A retained prefix of ``num_tokens`` tokens, until ``until`` in the cache clock's seconds
    (None: until it is released).

    ``lost`` where eviction had to take the last of it.
    """

    __slots__ = ("lost", "node", "num_tokens", "number", "released", "until")

    def __init__(self, number: int, node: Node, num_tokens: int, until: float | None) -> None:
        self.number = number
        self.node = node
        self.num_tokens = num_tokens
        self.until = until
        self.released = False
        self.lost = False


class Retentions:
    """All retentions of a tree. ``most_blocks``: what they may cover together."""

    def __init__(self, tree: Tree, most_blocks: int) -> None:
        self.most_blocks = most_blocks
        self._tree = tree
        self._by_node: dict[Node, set[Retention]] = {}
        self._by_time: SortedDict[tuple[float, int], Retention] = SortedDict()
        self._number = 0
        tree.on_retained_emptied = self._emptied

    def __len__(self) -> int:
        return sum(len(held) for held in self._by_node.values())

    def retain(
        self, tokens: bytes, seconds: float | None, namespace: Namespace, public_bytes: int
    ) -> Retention:
        """Retain what is stored and computed of a prefix. Raises RetentionRefused."""
        tree = self._tree
        padded = tokens + bytes(TOKEN_BYTES)  # so that the last one may be retained, too
        mode = CacheMode.READ_ONLY
        match = find(tree, padded, namespace, public_bytes, mode, partial_blocks=False)
        if not match.num_tokens:
            raise RetentionRefused("nothing of this prefix is stored; compute it first")
        end: Node = match.node
        if match.inside_bytes < len(end.run):
            end = tree.split(end, match.inside_bytes)
            tree.version += 1
        while (parent := end.parent) is not None and (end.in_flight or not end.run):
            # What is in flight may yet be withdrawn, and a namespace alone holds nothing.
            computed = (len(end.blocks) - end.in_flight) * tree.block_bytes
            if computed:
                end = tree.split(end, computed)
                tree.version += 1
            else:
                end = parent
        if end.parent is None:
            raise RetentionRefused("nothing of this prefix is computed yet; compute it first")
        return self.add(end, seconds)

    def add(self, end: Node, seconds: float | None) -> Retention:
        """Retain the path to the end of a node. Raises RetentionRefused over the cap. Cost:
        O(depth)."""
        tree = self._tree
        more = sum(len(node.blocks) for node in _path(end) if not node.retained)
        if tree.retained_blocks + more > self.most_blocks:
            raise RetentionRefused(
                f"retaining {more * tree.block_size} more tokens would go beyond the limit of "
                f"{self.most_blocks * tree.block_size} ({tree.retained_blocks * tree.block_size} "
                "are retained now); release a retention or wait for one to end"
            )
        _check_seconds(seconds)
        until = None if seconds is None else tree.clock() + seconds
        self._number += 1
        retention = Retention(self._number, end, end.end, until)
        self._change(end, 1)
        self._by_node.setdefault(end, set()).add(retention)
        if until is not None:
            self._by_time[(until, retention.number)] = retention
        return retention

    def refresh(self, retention: Retention, seconds: float) -> None:
        """Let it last ``seconds`` from now. Raises RetentionRefused for a time that is none."""
        _check_seconds(seconds)
        if retention.released:
            return
        self._forget_time(retention)
        retention.until = self._tree.clock() + seconds
        self._by_time[(retention.until, retention.number)] = retention

    def release(self, retention: Retention) -> None:
        """End it; again is a no-op. Cost: O(depth)."""
        if retention.released:
            return
        retention.released = True
        self._forget_time(retention)
        if retention.lost:
            return
        self._leave_node(retention)
        self._change(retention.node, -1)

    def expire(self, now: float) -> int:
        """End those whose time has come; how many."""
        ended = 0
        while self._by_time and self._by_time.peekitem(0)[0][0] <= now:
            self.release(self._by_time.peekitem(0)[1])
            ended += 1
        return ended

    def clear(self) -> None:
        """End all, since the tree they were in is flushed."""
        for held in self._by_node.values():
            for retention in held:
                retention.released = retention.lost = True
        self._by_node.clear()
        self._by_time.clear()
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
        for node in _path(end):
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
                self._forget_time(retention)
                continue
            retention.node = above
            retention.num_tokens = above.end
            self._by_node.setdefault(above, set()).add(retention)

    def _leave_node(self, retention: Retention) -> None:
        held = self._by_node[retention.node]
        held.discard(retention)
        if not held:
            del self._by_node[retention.node]

    def _forget_time(self, retention: Retention) -> None:
        if retention.until is not None:
            self._by_time.pop((retention.until, retention.number), None)


def _path(end: Node) -> list[Node]:
    """From a node up to, but without, the root."""
    nodes = []
    node = end
    while node.parent is not None:
        nodes.append(node)
        node = node.parent
    return nodes


def _check_seconds(seconds: float | None) -> None:
    if seconds is not None and not seconds > 0:
        raise RetentionRefused(f"seconds must be greater than 0, not {seconds}")
