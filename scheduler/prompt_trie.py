"""What the prompts of waiting and running requests have in common, and how far it is cached."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from radix_engine.cache import CacheMode
from scheduler.trie_node import (
    TrieNode,
    bury,
    common_end,
    mark_covered,
    mark_uncovered,
    merge,
    parent_of,
    split,
)

if TYPE_CHECKING:
    from scheduler.request import Request

TOKEN_BYTES = 4
_READING = tuple(mode for mode in CacheMode if mode.reads)  # looking here costs a fifth of asking
_STORING = tuple(mode for mode in CacheMode if mode.stores)


def _nobody(node: TrieNode) -> None:
    """No order wants to know."""


class PromptTrie:
    """A radix tree over the prompts of unfinished requests.

    It knows how far each prompt is cached, in whole blocks, and whether a running request is about
    to compute the next block of it. One change concerns one node, however many requests share it.

    A request's path are the whole blocks before its last token, which is always computed; one that
    does not read the cache has an empty path, and so has one that wants tokens' values, which may
    be missing where the tokens are cached. The trie is told what enters the cache (`cover`) and
    not what leaves it, so what it knows may be too much; `settle` corrects that for a path and for
    all who share it.

    ``on_change`` is called with each node whose place in an order may have to be found again: what
    is cached of it changed, it is no longer blocked, or it was split or merged. Nodes come before
    those above them. That a node became blocked, or lost requests, is not told.

    An operation costs O(nodes on the request's path), of which those with something missing count
    only, where that is said; `add` also compares the prompt's bytes.
    """

    def __init__(self, block_size: int, on_change: Callable[[TrieNode], None] = _nobody) -> None:
        self.on_change = on_change
        self._block_bytes = block_size * TOKEN_BYTES
        self._serials = count(1)
        self.root = TrieNode(None, b"", b"", 0, 0, 0, 0)
        self.ends: dict[int, TrieNode] = {}  # by request_id: where the path ends
        self._runs: dict[int, bool] = {}  # running requests: whether they store

    def __len__(self) -> int:
        """Requests, waiting and running."""
        return len(self.ends)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self.ends

    def add(self, request: Request, look_up: Callable[[TrieNode], int]) -> None:
        """A request waits from now on.

        ``look_up`` gives the tokens of it that are cached. It is called only where the nodes that
        others share do not tell: where the prompt leaves them with all before that point cached; it
        is given the last of these nodes, whose ``near`` it may use.
        Raises ValueError if the request is in the trie already.
        """
        if request.request_id in self.ends:
            raise ValueError(f"request {request.request_id} is in the trie already")
        run, block = request.run, self._block_bytes
        end = self._path_bytes(request)
        node = self.root.children.get(request.namespace.key) or self._new_namespace(request)
        at = 0
        leaf = found = None
        while at < end:
            key = run[at : at + block]
            child = node.children.get(key)
            if child is None:
                if node.cover == node.end:
                    found = min(self._whole_bytes(look_up(node)), end)
                serial = next(self._serials)
                leaf = TrieNode(node, key, run, at, end, serial, request.arrival)
                node.children[key] = leaf
                break
            at = common_end(run, end, child, self._block_bytes)
            if at < child.end:
                upper = split(child, at, block, next(self._serials))
                self.on_change(child)
                self.on_change(upper)
                child = upper
            node = child
        up: TrieNode | None = node
        while up is not None:
            up.waiting += 1
            up = up.parent
        if leaf is not None:
            leaf.waiting = 1
            if found is not None and found > at:
                leaf.cover = found
                mark_covered(node, leaf)
            elif found is not None and found < at:
                self._lower(node, found)
            node = leaf
        node.ends += 1
        self.ends[request.request_id] = node

    def start(self, request: Request) -> None:
        """A waiting request runs from now on. Others wait for what it computes, if it stores it."""
        stores = request.mode in _STORING
        self._runs[request.request_id] = stores
        node: TrieNode | None = self.ends[request.request_id]
        while node is not None:
            node.waiting -= 1
            node.running += stores
            node = node.parent

    def stores_no_more(self, request: Request) -> None:
        """A running request will store nothing more of its path: it has computed all of it, or
        cannot store it. Nobody waits for it any more. Again is a no-op.

        To be called when the prompt is computed: else others would wait for blocks that left the
        cache since, which it does not compute again.
        """
        if self._runs.get(request.request_id):
            self._runs[request.request_id] = False
            self._tell(self._stop_storing(self.ends[request.request_id]))

    def remove(self, request: Request) -> None:
        """A request leaves, waiting or running. One that is not in the trie: nothing happens."""
        end = self.ends.pop(request.request_id, None)
        if end is None:
            return
        stores = self._runs.pop(request.request_id, None)
        if stores is None:
            node: TrieNode | None = end
            while node is not None:
                node.waiting -= 1
                node = node.parent
        unblocked = self._stop_storing(end) if stores else []
        end.ends -= 1
        self._prune(end)
        self._tell(unblocked)

    def cover(self, request: Request, tokens: int) -> None:
        """The request's first ``tokens`` tokens, rounded down to whole blocks, are in the cache
        from now on, or will be after this step. Cost: nodes with something missing."""
        node = end = self.ends[request.request_id]
        target = self._whole_bytes(tokens)
        path = []  # where something is missing, the deepest first
        while node.cover < node.end:
            path.append(node)
            node = parent_of(node)
        changed = []
        for node in reversed(path):
            if node.cover >= target:
                break
            if node.cover == node.start:
                mark_covered(parent_of(node), node)
            node.cover = min(target, node.end)
            changed.append(node)
        if target > end.end and end.cover == end.end:
            self._cover_next(request, end, changed)
        for node in reversed(changed):
            self.on_change(node)

    def settle(self, request: Request, tokens: int) -> bool:
        """A look-up found the first ``tokens`` tokens of the request cached, rounded down to whole
        blocks, and no more. Whether the trie knew anything else; it is corrected for all who share
        the path. Cost: nodes with something missing, and those that were covered too far."""
        end = self.ends[request.request_id]
        node = self._stop(end)
        target = min(self._whole_bytes(tokens), end.end)
        if target == node.cover:
            return False
        if target > node.cover:
            self.cover(request, tokens)
        else:
            self._lower(node, target)
        return True

    def cached_tokens(self, request: Request) -> int:
        """Tokens of the request known to be cached, in whole blocks. Cost: nodes with something
        missing."""
        return self._stop(self.ends[request.request_id]).cover // TOKEN_BYTES

    def blocked(self, request: Request) -> bool:
        """Whether somebody running is about to compute the next block of this waiting request's
        prompt. Cost: nodes with something missing."""
        return self._stop(self.ends[request.request_id]).is_blocked

    def nearest(self, request: Request) -> TrieNode:
        """The deepest node that shares a block with the request's path, or the namespace, or the
        root; the request need not be in the trie. Cost: as `add` where it is not."""
        node = self.ends.get(request.request_id)
        if node is not None:
            return node
        node = self.root.children.get(request.namespace.key)
        if node is None:
            return self.root
        run, block = request.run, self._block_bytes
        end = self._path_bytes(request)
        while node.end < end:
            child = node.children.get(run[node.end : node.end + block])
            if child is None:
                break
            node = child
            if common_end(run, end, child, self._block_bytes) < child.end:
                break
        return node

    def _path_bytes(self, request: Request) -> int:
        if request.mode not in _READING or request.payload is not None:
            return 0
        return (len(request.run) - TOKEN_BYTES) // self._block_bytes * self._block_bytes

    def _whole_bytes(self, tokens: int) -> int:
        size = tokens * TOKEN_BYTES
        return size - size % self._block_bytes

    def _new_namespace(self, request: Request) -> TrieNode:
        key = request.namespace.key
        node = TrieNode(self.root, key, b"", 0, 0, next(self._serials), request.arrival)
        self.root.children[key] = node
        return node

    def _cover_next(self, request: Request, end: TrieNode, changed: list[TrieNode]) -> None:
        """The prompt's last block, which is not of its own path, may be of longer prompts'."""
        child = end.children.get(request.run[end.end : end.end + self._block_bytes])
        if child is not None and child.cover == child.start:
            child.cover += self._block_bytes
            mark_covered(end, child)
            changed.append(child)

    def _stop(self, node: TrieNode) -> TrieNode:
        """The topmost node with something missing on the path to this one, or this one."""
        while True:
            parent = node.parent
            assert parent is not None
            if parent.cover == parent.end:
                return node
            node = parent

    def _stop_storing(self, end: TrieNode) -> list[TrieNode]:
        """One running request less on the path; the nodes that it leaves unblocked."""
        unblocked = []
        node: TrieNode | None = end
        while node is not None:
            node.running -= 1
            if not node.running and node.cover < node.end:
                unblocked.append(node)
            node = node.parent
        return unblocked

    def _tell(self, unblocked: list[TrieNode]) -> None:
        for node in unblocked:
            if node.waiting:
                self.on_change(node)

    def _lower(self, node: TrieNode, target: int) -> None:
        """Nothing beyond ``target`` is cached, on the path to this node or on any below."""
        while node.start > target:
            node = parent_of(node)
        node.cover = target
        if target == node.start:
            mark_uncovered(parent_of(node), node)
        lowered = [node]
        for above in lowered:
            if above.covered:
                lowered.extend(above.covered)
            above.covered = None
        for below in lowered[1:]:
            below.cover = below.start
        for each in reversed(lowered):
            self.on_change(each)

    def _prune(self, node: TrieNode) -> None:
        """Remove what no request needs any more, from an end upwards."""
        while not node.ends and not node.children and node.parent is not None:
            parent = node.parent
            del parent.children[node.key]
            mark_uncovered(parent, node)
            bury(node)
            node = parent
        if not node.ends and len(node.children) == 1 and node.start < node.end:
            self.on_change(merge(node))
