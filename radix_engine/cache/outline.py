"""The tree in outline: its most recently used and its largest parts, within a bound of work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import islice
from typing import NamedTuple

from radix_engine.cache.namespace import Namespace
from radix_engine.cache.node import Node
from radix_engine.cache.prefix_cache import PrefixCache
from radix_engine.cache.rehearsal import next_victims
from radix_engine.cache.token_run import TOKEN_BYTES

# Looks at nodes for each one that is shown, and at least: what they find beyond what is shown goes
# into the totals of what is folded.
_LOOKS_EACH = 3
_LEAST_LOOKS = 1000
# Of what is shown, at most this share are victims and what is above them.
_VICTIMS_SHARE = 4
_IN_USE = 1 << 62  # newer than any use that has ended


class Sighting(NamedTuple):
    """A node that is shown. ``parent``: its place in the list (None: the root's). ``key``: what
    tells it from its siblings. ``last_used``: on the cache's clock, None while it is locked;
    ``retained_until`` likewise, None where there is no end or no retention that ends here.
    ``children``: all of them, shown or not. ``victim``: its place among those evicted next, from 1.
    ``head``: the first tokens of its run, packed. Else as in `NodeDump`."""

    parent: int | None
    key: bytes
    start: int
    tokens: int
    blocks: int
    in_flight: int
    locks: int
    hits: int
    last_used: float | None
    retained: int
    retained_until: float | None
    namespace: Namespace | None
    children: int
    victim: int | None
    head: bytes


@dataclass(slots=True)
class Fold:
    """The children of a node that are not shown, with all below them. ``nodes`` counts the children
    alone. ``is_whole`` False: not all was looked at, so that there is more than these totals."""

    nodes: int = 0
    tokens: int = 0
    blocks: int = 0
    hits: int = 0
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Outline:
    """Parents stand before their children. ``folds``: by the place of the node they hang on."""

    block_size: int
    nodes: list[Sighting]
    folds: dict[int, Fold]


def outline(
    cache: PrefixCache,
    limit: int,
    *,
    depth: int | None = None,
    tells: Callable[[Namespace], bool] | None = None,
    head_tokens: int = 32,
    victims: int = 32,
) -> Outline:
    """At most ``limit`` nodes: those evicted next with what is above them, then in turn the most
    recently used and the largest of those whose parents are shown. What is left out is folded into
    one entry for each parent.

    ``depth``: edges below a namespace's start that are shown. ``tells``: the namespaces that are
    shown; others are not even counted. Operators only: it tells of all tenants. Cost: O(limit log
    limit), whatever the tree's size; 4 looks at nodes for each that is shown at most.
    """
    return _Walk(cache, limit, depth, tells, head_tokens, victims).run()


@dataclass(slots=True)
class _Siblings:
    """The children of a shown node that may be shown, in one order; ``next``: the first that is
    left."""

    nodes: list[Node]
    parent: int
    depth: int
    next: int = 0


class _Walk:
    """One look at the tree."""

    def __init__(
        self,
        cache: PrefixCache,
        limit: int,
        depth: int | None,
        tells: Callable[[Namespace], bool] | None,
        head_tokens: int,
        victims: int,
    ) -> None:
        self._cache = cache
        self._limit = limit
        self._depth = depth
        self._tells = tells
        self._head = head_tokens * TOKEN_BYTES
        self._step = cache.block_size * TOKEN_BYTES
        self._looks = max(_LEAST_LOOKS, _LOOKS_EACH * limit)
        self._first = [
            node for node in next_victims(cache._tree, victims) if not self._is_below_hidden(node)
        ]
        self._victims = {node: place for place, node in enumerate(self._first, start=1)}
        self._nodes: list[Sighting] = []
        self._shown: dict[Node, int] = {}
        self._folds: dict[int, Fold] = {}
        self._recent: list[tuple[int, int, _Siblings]] = []
        self._large: list[tuple[int, int, _Siblings]] = []
        self._by_parent: list[tuple[int, list[Node]]] = []

    def run(self) -> Outline:
        """The outline."""
        self._show(self._cache.root, None, 0)
        for node in self._first:
            self._show_path(node)
        turn = 0
        while len(self._nodes) < self._limit and (self._recent or self._large):
            turn += 1
            if self._recent and (turn % 2 or not self._large):
                self._show_next(self._recent, _use)
            else:
                self._show_next(self._large, _size)
        for parent, children in self._by_parent:
            left = [child for child in children if child not in self._shown]
            if left:
                self._fold(left, parent)
        return Outline(self._cache.block_size, self._nodes, self._folds)

    def _show_next(
        self, heap: list[tuple[int, int, _Siblings]], worth: Callable[[Node], int]
    ) -> None:
        """Show the best of all that is left of one order."""
        _, count, siblings = heap[0]
        node = siblings.nodes[siblings.next]
        siblings.next += 1
        if siblings.next < len(siblings.nodes):
            heapreplace(heap, (-worth(siblings.nodes[siblings.next]), count, siblings))
        else:
            heappop(heap)
        if node not in self._shown:
            self._show(node, siblings.parent, siblings.depth)

    def _show_path(self, node: Node) -> None:
        """Show a victim and what is above it."""
        path: list[Node] = []
        above: Node | None = node
        while above is not None and above not in self._shown:
            path.append(above)
            above = above.parent
        if not path or len(self._nodes) + len(path) > self._limit // _VICTIMS_SHARE:
            return
        edges = _edges_above(path[-1])
        if self._depth is not None and edges + len(path) > self._depth:
            return
        for each in reversed(path):
            assert each.parent is not None
            edges += bool(each.run)
            self._show(each, self._shown[each.parent], edges)

    def _show(self, node: Node, parent: int | None, depth: int) -> None:
        """Put a node into the list, and its children among those that may come next."""
        run, locks = node.run, node.pins
        space = node.namespace
        place = len(self._nodes)
        self._shown[node] = place
        self._nodes.append(
            Sighting(
                parent,
                bytes(run[: self._step]) if space is None else space.key,
                node.start,
                len(run) // TOKEN_BYTES,
                len(node.blocks),
                node.in_flight,
                locks,
                node.hits,
                None if locks else node.last_used,
                node.retained,
                self._cache.retentions.until(node) if node.retained else None,
                space,
                len(node.children),
                self._victims.get(node),
                bytes(run[: self._head]),
            )
        )
        if node.children:
            self._children(node, place, depth)

    def _children(self, node: Node, place: int, depth: int) -> None:
        # The newest first, should there be more than one wants to look at.
        most = min(len(node.children), max(self._looks, 1))
        self._looks -= most
        children = list(islice(reversed(node.children.values()), most))
        if self._tells is not None:
            children = [each for each in children if not self._is_hidden(each)]
        if most < len(node.children):
            fold = self._folds.setdefault(place, Fold())
            fold.nodes += len(node.children) - most
            fold.is_whole = False
        if not children:
            return
        if self._depth is not None and depth >= self._depth and node.run:
            self._fold(children, place)
            return
        self._by_parent.append((place, children))
        below = depth + bool(children[0].run)
        for heap, worth in ((self._recent, _use), (self._large, _size)):
            ordered = sorted(children, key=worth, reverse=True)
            heappush(heap, (-worth(ordered[0]), place, _Siblings(ordered, place, below)))

    def _fold(self, children: list[Node], parent: int) -> None:
        """Add children that are not shown, and what is below them, to their parent's totals."""
        fold = self._folds.setdefault(parent, Fold())
        fold.nodes += len(children)
        todo = children
        while todo:
            following: list[Node] = []
            for each in todo:
                fold.tokens += len(each.run) // TOKEN_BYTES
                fold.blocks += len(each.blocks)
                fold.hits += each.hits
                if each.children:
                    if self._looks < len(each.children):
                        fold.is_whole = False
                        continue
                    self._looks -= len(each.children)
                    following.extend(
                        child
                        for child in each.children.values()
                        if self._tells is None or not self._is_hidden(child)
                    )
            todo = following

    def _is_below_hidden(self, node: Node) -> bool:
        above: Node | None = node if self._tells is not None else None
        while above is not None:
            if self._is_hidden(above):
                return True
            above = above.parent
        return False

    def _is_hidden(self, node: Node) -> bool:
        space = node.namespace
        return space is not None and self._tells is not None and not self._tells(space)


def _use(node: Node) -> int:
    """The later, the more: what is in use is newer than any use that has ended."""
    return _IN_USE if node.pins else node.tick


def _size(node: Node) -> int:
    return len(node.run)


def _edges_above(node: Node) -> int:
    count = 0
    above = node.parent
    while above is not None:
        count += bool(above.run)
        above = above.parent
    return count
