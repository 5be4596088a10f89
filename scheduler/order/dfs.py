"""Depth first through the trie of prompts, the heaviest branch first."""

from __future__ import annotations

from heapq import heappop, heapreplace
from typing import TYPE_CHECKING, Any

from scheduler.order.heaps import push
from scheduler.prompt_trie import PromptTrie
from scheduler.trie_node import TrieNode

if TYPE_CHECKING:
    from scheduler.request import Request

_MEMBER = -(1 << 62)  # before every branch, whatever its weight
_MOST_TAKEN = 256  # that may be put back before the next is asked for


class DepthFirst:
    """What shares most with the request taken last; there, the branch with most waiting requests.

    From where the last one's path ends (or leaves the trie, once it has left it itself) it climbs
    to the nearest node with a request at or below it that is not blocked, and descends from there:
    who ends at a node goes before its branches, by arrival; of the branches the one with most
    waiting requests, blocked ones counted; of equal ones the one whose first request came earliest.
    Nobody is taken while requests wait for what the last one's own path is blocked by: going
    elsewhere would begin one branch after another and finish none.

    Cost: ``add`` O(nodes on the path x log waiting); ``best`` O(nodes on the last one's path and on
    the chosen one's, log waiting).
    """

    # Entries of a node's heap: (_MEMBER, arrival, request_id, request), good while it is in
    # ``_present``, and (-weight, arrival of its first request, serial, node), good while the weight
    # is that child's ``queued``. Weights are upper bounds, made exact where they come to the top. A
    # node that is blocked, or has nobody to offer, is in no heap once it came to the top; it comes
    # back by ``add`` and by ``_changed``.

    def __init__(self, trie: PromptTrie) -> None:
        self._trie = trie
        trie.on_change = self._changed
        self._present: dict[int, Any] = {}
        self._taken: list[Request] = []  # the latest last; those put back since do not count

    def __len__(self) -> int:
        return len(self._present)

    def add(self, request: Request) -> None:
        """The request, which is in the trie, waits from now on, or again."""
        node = self._trie.ends[request.request_id]
        entry = (_MEMBER, request.arrival, request.request_id, request)
        self._present[request.request_id] = entry
        push(node, entry, self._is_good)
        while node.parent is not None:
            if node.queued is None or node.queued < node.waiting:
                self._queue(node.parent, node)
            node = node.parent

    def discard(self, request: Request) -> None:
        """The request waits no longer. Again is a no-op. Cost: O(1)."""
        self._present.pop(request.request_id, None)

    def best(self, now: float) -> Request | None:
        """Take out the next on the way; None also where the way on is being computed."""
        node: TrieNode | None = self._starting_point()
        while node is not None:
            owner = self._first(node) if node.waiting else None
            if owner is not None:
                request: Request = heappop(owner.heap)[3]
                del self._present[request.request_id]
                self._taken.append(request)
                return request
            node = node.parent
        return None

    def _starting_point(self) -> TrieNode | None:
        """Where the last one's path ends; None where others wait for something on it."""
        taken = self._taken
        while taken and taken[-1].request_id in self._present:
            taken.pop()
        if not taken:
            return self._trie.root
        del taken[:-_MOST_TAKEN]
        node: TrieNode | None = self._trie.nearest(taken[-1])
        start = node
        while node is not None:
            if node.is_blocked and node.waiting:
                return None
            node = node.parent
        return start

    def _changed(self, node: TrieNode) -> None:
        """Put the node back into its parent's heap, and those above, where they are missing."""
        if not node.heap:
            return
        while node.parent is not None:
            if node.queued is not None and node.queued >= node.waiting:
                return
            self._queue(node.parent, node)
            node = node.parent

    def _queue(self, parent: TrieNode, child: TrieNode) -> None:
        child.queued = child.waiting
        push(parent, (-child.waiting, child.first, child.serial, child), self._is_good)

    def _is_good(self, node: TrieNode, entry: Any) -> bool:
        if entry[0] == _MEMBER:
            return self._present.get(entry[2]) is entry
        child: TrieNode = entry[3]
        return child.parent is node and child.queued == -entry[0]

    def _first(self, node: TrieNode) -> TrieNode | None:
        """The node whose heap has the request at its top that comes first of all at or below this
        one, which is not blocked."""
        path: list[TrieNode] = []
        while True:
            heap = node.heap
            while heap:
                entry = heap[0]
                if not self._is_good(node, entry):
                    heappop(heap)
                    continue
                if entry[0] == _MEMBER:
                    return node
                child: TrieNode = entry[3]
                if child.is_blocked:
                    heappop(heap)
                    child.queued = None
                elif child.waiting < -entry[0]:
                    child.queued = child.waiting
                    heapreplace(heap, (-child.waiting, *entry[1:]))
                else:
                    break
            if heap:
                path.append(node)
                node = heap[0][3]
            elif path:
                node.queued = None
                node = path.pop()
                heappop(node.heap)
            else:
                return None
