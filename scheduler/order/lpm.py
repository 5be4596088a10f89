"""Longest cached prefix first, then by arrival."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from scheduler.order.heaps import SLACK, push
from scheduler.prompt_trie import PromptTrie
from scheduler.trie_node import TrieNode

if TYPE_CHECKING:
    from scheduler.request import Request


class LongestMatch:
    """The request with most cached tokens, as the trie knows them; the earliest of equal ones.

    ::

        ranking: nodes with a cached part, by (most cached, earliest arrival below)
                    |
                  head  cached: offers who ends there and the branches where nothing is cached;
                 / | \\          branches with a cached part have their own place in the ranking
               own own own     nothing cached: offers all at or below it, by arrival

    So publishing a head that ten thousand requests share moves one entry, and so does its eviction.
    Arrivals in heaps are lower bounds (a request that leaves corrects nothing); they are made exact
    where they come to the top, without recursion.

    Cost: ``add`` O(log waiting) and a push for each uncovered node on the path that had nobody
    earlier; ``best`` O(log waiting) and the uncovered nodes on the chosen one's path.
    """

    # Entries. Ranking: (-cover, arrival, serial of the node, node), good while it is the node's
    # ``place``. A node's heap: (arrival, 0, request_id, request), good while it is in ``_present``,
    # and (arrival, serial, node), good while ``arrival`` is that child's ``queued``. A node that is
    # blocked is in no heap once it came to the top, and comes back by ``_changed``.

    def __init__(self, trie: PromptTrie) -> None:
        self._ends = trie.ends
        trie.on_change = self._changed
        self._present: dict[int, Any] = {}
        self._ranking: list[Any] = []
        self._most_entries = SLACK

    def __len__(self) -> int:
        return len(self._present)

    def add(self, request: Request) -> None:
        """The request, which is in the trie, waits from now on, or again."""
        node = self._ends[request.request_id]
        arrival = request.arrival
        entry = (arrival, 0, request.request_id, request)
        self._present[request.request_id] = entry
        if node.heap:
            push(node, entry, self._is_good)
        else:
            node.heap.append(entry)
        while node.cover == node.start < node.end:
            if node.running or (node.queued is not None and node.queued <= arrival):
                return  # `_changed` will come when it is unblocked; or who is above knows already
            parent = node.parent
            assert parent is not None
            node.queued = arrival
            push(parent, (arrival, node.serial, node), self._is_good)
            node = parent
        place = node.place
        if place is None or place[1] > arrival:
            self._rank(node)

    def discard(self, request: Request) -> None:
        """The request waits no longer. Again is a no-op. Cost: O(1)."""
        self._present.pop(request.request_id, None)

    def best(self, now: float) -> Request | None:
        """Take out who has most cached and is not blocked."""
        ranking = self._ranking
        while ranking:
            entry = ranking[0]
            node: TrieNode = entry[3]
            if node.place is not entry:
                heappop(ranking)
                continue
            blocked = node.running and node.cover < node.end
            owner = None if blocked else self._earliest(node)
            if owner is None:
                heappop(ranking)
                node.place = None
                continue
            arrival = node.heap[0][0]
            if arrival != entry[1]:
                node.place = entry = (entry[0], arrival, entry[2], node)
                heapreplace(ranking, entry)
                if ranking[0] is not entry:
                    continue
            request: Request = heappop(owner.heap)[3]
            del self._present[request.request_id]
            if not owner.heap:
                owner.queued = None  # nobody needs to look into it again
            return request
        return None

    def _changed(self, node: TrieNode) -> None:
        """Find the node's place again; those below it have theirs."""
        if node.cover > node.start or node.start == node.end:
            node.queued = None
            self._rank(node)
            return
        node.place = None
        if not node.heap or node.running:
            return
        arrival = node.heap[0][0]
        if node.queued is None or node.queued > arrival:
            parent = node.parent
            assert parent is not None
            node.queued = arrival
            push(parent, (arrival, node.serial, node), self._is_good)
            if parent.cover > parent.start or parent.start == parent.end:
                self._rank(parent)

    def _rank(self, node: TrieNode) -> None:
        """Give a covered node its place in the ranking, if it has anybody to offer."""
        if not node.heap or (node.running and node.cover < node.end):
            node.place = None
            return
        arrival, place = node.heap[0][0], node.place
        if place is None or place[0] != -node.cover or place[1] > arrival:
            node.place = (-node.cover, arrival, node.serial, node)
            heappush(self._ranking, node.place)
            if len(self._ranking) > self._most_entries:
                self._ranking = [entry for entry in self._ranking if entry[3].place is entry]
                heapify(self._ranking)
                self._most_entries = 2 * len(self._ranking) + SLACK

    def _is_good(self, node: TrieNode, entry: Any) -> bool:
        if entry[1] == 0:
            return self._present.get(entry[2]) is entry
        child: TrieNode = entry[2]
        return child.parent is node and child.queued == entry[0]

    def _earliest(self, node: TrieNode) -> TrieNode | None:
        """The node whose heap has the earliest request at its top, of all that this one offers.

        The tops of the heaps on the way there are exact afterwards.
        """
        present = self._present
        path: list[TrieNode] = []
        while True:
            heap = node.heap
            while heap:
                entry = heap[0]
                if entry[1] == 0:
                    if present.get(entry[2]) is entry:
                        break
                else:
                    child: TrieNode = entry[2]
                    if child.queued == entry[0] and child.parent is node:
                        if not child.running:
                            break
                        child.queued = None  # blocked
                heappop(heap)
            if not heap:
                if not path:
                    return None
                node.queued = None
                node = path.pop()
                heappop(node.heap)
            elif entry[1]:
                path.append(node)
                node = entry[2]
            else:
                arrival, owner = entry[0], node
                while path:
                    child, node = node, path.pop()
                    if child.queued != arrival:  # it was a lower bound: others may be earlier
                        child.queued = arrival
                        heapreplace(node.heap, (arrival, child.serial, child))
                        break
                else:
                    return owner
