"""The walk that makes an `Outline`: in slices, between which the tree may change."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count, islice
from time import perf_counter

from radix_engine.cache.node import Node
from radix_engine.cache.outline import Fold, Outline, Scope, Sighting
from radix_engine.cache.prefix_cache import PrefixCache
from radix_engine.cache.rehearsal import next_victims
from radix_engine.cache.token_run import TOKEN_BYTES

# Looks at nodes for each one that is shown, and at least: what they find beyond what is shown goes
# into the totals of what is folded.
_LOOKS_EACH = 2
_LEAST_LOOKS = 1000
# Of what is shown, at most this share are victims and what is above them.
_VICTIMS_SHARE = 4
_CHUNK = 64  # nodes that are looked at without a look at the time
_IN_USE = 1 << 62  # newer than any use that has ended

# What is worth most comes first: minus its worth, a number, the node, and its parent's place.
_Choice = list[tuple[int, int, Node, int]]


def outline(cache: PrefixCache, scope: Scope) -> Outline:
    """At most ``limit`` nodes: those evicted next with what is above them, then in turn the most
    recently used and the largest of those whose parents are shown. What is left out is folded into
    one entry for each parent.

    Operators only: it tells of all tenants. Cost: O(limit log limit), whatever the tree's size; 3
    looks at nodes for each that is shown at most, a microsecond or two each.
    """
    found = None
    walk = OutlineWalk(cache, scope)
    while found is None:
        found = walk.advance(1.0)
    return found


class OutlineWalk:
    """The same, a slice at a time; in between the tree may change in any way.

    Each node is told as it was at one moment between the first slice and the last, a parent not
    after its children. What was there when its parent was looked at, and has gone when it is looked
    at itself, is left out; what has come since is left out, too. A run that was cut meanwhile is
    told as its parts, or as it was before. So nothing counts twice, and what did not change is told
    as it is. After a flush the walk starts again, and then goes to its end in one slice.
    """

    def __init__(self, cache: PrefixCache, scope: Scope) -> None:
        self._cache = cache
        self._scope = scope
        self._slices = 0
        self._begin()

    def advance(self, seconds: float) -> Outline | None:
        """Go on for about so long; what was found, if that was all. A slice takes longer than that
        by some tens of microseconds, the first one by what 32 evictions take; and by 2 ms at most
        where tens of thousands of nodes hang on one, and ``limit`` is as large. Not to be called
        while the cache is changed."""
        if self._root is not self._cache.root:
            self._begin()
            seconds = float("inf")
        self._slices += 1
        end = perf_counter() + seconds
        for _ in self._walking:
            if perf_counter() >= end:
                return None
        size = self._cache.block_size
        return Outline(size, self._seen, self._folds, is_found=self._is_found)

    def _begin(self) -> None:
        scope = self._scope
        self._root = self._cache.root
        self._head = max(scope.head_tokens, self._cache.block_size) * TOKEN_BYTES
        self._looks = max(_LEAST_LOOKS, _LOOKS_EACH * scope.limit)
        self._most = scope.limit + len(scope.below)
        self._is_found = True
        self._victims: dict[Node, int] = {}
        # By place: what is shown, as it was seen, and the edges from the top to its end.
        self._at: list[Node] = []
        self._seen: list[Sighting] = []
        self._shown: dict[Node, int] = {}
        self._edges: list[int] = []
        self._folds: dict[int, Fold] = {}
        self._looked_at: dict[int, set[Node]] = {}  # where that was not all
        self._numbers = count()
        self._new: list[tuple[int, Node, list[Node]]] = []  # children, with their parent's place
        self._opened: list[tuple[int, Node, list[Node]]] = []  # those that have had their look
        self._recent: _Choice = []
        self._large: _Choice = []
        self._walking = self._walk()

    def _walk(self) -> Iterator[None]:
        """All of it, with a stop after each small piece of work."""
        victims = next_victims(self._cache._tree, self._scope.victims)
        victims = [node for node in victims if self._is_below(node, self._root)]
        self._victims = {node: place for place, node in enumerate(victims, start=1)}
        top = self._show_top()
        if top is None:
            self._is_found = False
            return
        victims = [node for node in victims if self._is_below(node, top)]
        self._open(top, len(self._seen) - 1)
        yield
        # Victims change all the time: what they leave room for does not depend on them.
        yield from self._show_best(self._most - self._most // _VICTIMS_SHARE * bool(victims))
        for node in victims:
            yield from self._show_path(node)
        yield from self._show_best(self._most)
        for place, parent, nodes in self._new:
            self._opened.append((place, parent, self._told(nodes)))
        yield
        for place, parent, nodes in self._opened:
            todo = [(parent, nodes)]
            while todo:
                self._fold(place, *todo.pop(), todo)
                yield

    def _show_top(self) -> Node | None:
        """Show what is above all else that is shown; the last of it."""
        top = self._root
        self._show(top, None, 0)
        for place, key in enumerate(self._scope.below):
            below = top.children.get(key)
            if below is None or self._is_hidden(below):
                return None
            top = below
            self._show(top, place, 0)
        return top

    def _show_best(self, most: int) -> Iterator[None]:
        """Show what is used last and what is largest, in turn, until there are so many."""
        turn = 0
        while len(self._seen) < most:
            if self._new:
                self._look_at(*self._new.pop())
            elif self._recent or self._large:
                turn += 1
                one, other = self._recent, self._large
                self._show_next((one if turn % 2 else other) or one or other)
            else:
                break
            yield

    def _show_path(self, victim: Node) -> Iterator[None]:
        """Show a victim and what is above it."""
        depth = self._scope.depth
        while victim not in self._shown:
            slices, path = self._slices, _path(victim, self._shown)
            if not path or len(self._seen) + len(path) > self._most:
                return
            above = path[-1].parent
            assert above is not None
            place = self._shown[above]
            if depth is not None and self._edges[place] + len(path) > depth:
                return
            for node in reversed(path):
                self._no_longer_folded(node, place)
                place = self._show(node, place, self._edges[place] + bool(node.run))
                self._open(node, place)
                yield
                if self._slices != slices:
                    break  # the path may be another by now

    def _show_next(self, choice: _Choice) -> None:
        """Show the best of all that is left of one order."""
        _, _, node, place = heappop(choice)
        if node in self._shown:
            return
        now = _in_place_of(node, self._at[place])
        if now is not None and now not in self._shown:
            self._open(now, self._show(now, place, self._edges[place] + bool(now.run)))

    def _show(self, node: Node, parent: int | None, edges: int) -> int:
        """Put a node into the list; its place."""
        run, locks, blocks, retained = node.run, node.pins, len(node.blocks), node.retained
        place = len(self._seen)
        self._shown[node] = place
        self._at.append(node)
        self._edges.append(edges)
        self._seen.append(
            Sighting(
                parent,
                node.start,
                len(run) // TOKEN_BYTES,
                blocks,
                node.in_flight,
                locks,
                node.hits,
                None if locks else node.last_used,
                retained,
                self._cache.retentions.until(node) if retained else None,
                node.namespace,
                len(node.children),
                self._victims.get(node) if blocks and not locks else None,
                bytes(run[: self._head]),
            )
        )
        return place

    def _open(self, node: Node, place: int) -> None:
        """Have a node's children among those that may come next."""
        children = len(node.children)
        if not children:
            return
        # The newest first, should there be more than one wants to look at.
        most = min(children, max(self._looks, 1))
        self._looks -= most
        found = list(islice(reversed(node.children.values()), most))
        if most < children:
            # Of namespaces that nobody has looked at, who knows whether they may be told of?
            is_all = self._scope.tells is None or all(each.namespace is None for each in found)
            self._folds[place] = Fold(children - most if is_all else 0, is_whole=False)
            self._looked_at[place] = set(found)
        for start in range(0, most, _CHUNK):
            self._new.append((place, node, found[start : start + _CHUNK]))

    def _no_longer_folded(self, node: Node, parent: int) -> None:
        """A child is about to be shown that nobody may have looked at."""
        looked_at, fold = self._looked_at.get(parent), self._folds.get(parent)
        if looked_at is not None and fold and fold.nodes and node not in looked_at:
            fold.nodes -= 1
            if not fold.nodes:
                del self._folds[parent]

    def _look_at(self, place: int, parent: Node, nodes: list[Node]) -> None:
        """Have some children take part in the choice of what is shown next."""
        nodes = self._told(nodes)
        self._opened.append((place, parent, nodes))
        depth = self._scope.depth
        if depth is not None and self._edges[place] >= depth and parent.run:
            return
        for node in nodes:
            number = next(self._numbers)
            worth = _IN_USE if node.pins else node.tick
            heappush(self._recent, (-worth, number, node, place))
            heappush(self._large, (-len(node.run), number, node, place))

    def _fold(
        self, place: int, parent: Node, nodes: list[Node], todo: list[tuple[Node, list[Node]]]
    ) -> None:
        """Add nodes that are not shown to the totals of what hangs on the node at ``place``, and
        the children of these to what is to be done."""
        shown, fold = self._shown, self._folds.get(place)
        is_child = parent in shown
        for each in nodes:
            if each in shown:
                continue
            node = each if each.parent is parent else _in_place_of(each, parent)
            if node is None or node in shown:
                continue
            if fold is None:
                fold = self._folds[place] = Fold()
            fold.nodes += is_child
            fold.tokens += len(node.run) // TOKEN_BYTES
            fold.blocks += len(node.blocks)
            fold.hits += node.hits
            if children := len(node.children):
                if self._looks < children:
                    fold.is_whole = False
                    continue
                self._looks -= children
                below = self._told(list(node.children.values()))
                todo.extend((node, below[at : at + _CHUNK]) for at in range(0, children, _CHUNK))

    def _told(self, nodes: list[Node]) -> list[Node]:
        """Those of some children that may be told of."""
        if self._scope.tells is None:
            return nodes
        return [node for node in nodes if not self._is_hidden(node)]

    def _is_below(self, node: Node, top: Node) -> bool:
        """Whether a node is among what may be shown below ``top``."""
        above: Node | None = node
        while above is not None and above is not top:
            if self._is_hidden(above):
                return False
            above = above.parent
        return above is top

    def _is_hidden(self, node: Node) -> bool:
        space, tells = node.namespace, self._scope.tells
        return space is not None and tells is not None and not tells(space)


def _in_place_of(node: Node, parent: Node) -> Node | None:
    """What hangs on ``parent`` where a node did: itself, or what was cut off above it. None where
    it has gone. Cost: constant, where the run was not cut."""
    while (above := node.parent) is not parent:
        if above is None:
            return None
        node = above
    return node


def _path(node: Node, shown: dict[Node, int]) -> list[Node]:
    """A node and all above it that is not shown, the deepest first; nothing where it has gone."""
    path: list[Node] = []
    above: Node | None = node
    while above is not None and above not in shown:
        path.append(above)
        above = above.parent
    return [] if above is None else path
