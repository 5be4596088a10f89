"""The nodes' heaps that orders keep: entries become outdated, and are dropped now and then."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappush
from typing import Any

from scheduler.trie_node import TrieNode

SLACK = 64  # outdated entries that a heap may hold besides as many as it has good ones


def push(node: TrieNode, entry: Any, is_good: Callable[[TrieNode, Any], bool]) -> None:
    """Add an entry to a node's heap, of which only those are kept that ``is_good``, once, when it
    has grown to twice what the node can offer. Entries that are equal but for their last item are
    one. Cost: amortised O(log entries)."""
    heap = node.heap
    heappush(heap, entry)
    if len(heap) > 2 * (len(node.children) + node.ends) + SLACK:
        good = {entry[:-1]: entry for entry in heap if is_good(node, entry)}
        heap[:] = good.values()
        heapify(heap)
