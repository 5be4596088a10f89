"""What `PromptTrie` and the orders must say, found by looping over all requests."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.request import Request
from scheduler.trie_node import TrieNode

Prefix = tuple[bytes, bytes]  # a namespace's key, and whole blocks


class NaivePrompts:
    """All unfinished requests, and the prefixes of theirs that are believed to be cached."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.requests: dict[int, Request] = {}
        self.running: set[int] = set()
        self.storing: set[int] = set()  # of the running ones
        self.cached: set[Prefix] = set()

    def path(self, request: Request) -> bytes:
        """The whole blocks before the last token; none for who does not read the cache."""
        if not request.mode.reads:
            return b""
        blocks = (request.num_prompt_tokens - 1) // self.block_size
        return request.run[: blocks * self.block_size * 4]

    def prefixes(self, request: Request, run: bytes) -> list[Prefix]:
        """Of one block, two blocks, and so on."""
        block = self.block_size * 4
        ends = range(block, len(run) + 1, block)
        return [(request.namespace.key, run[:end]) for end in ends]

    def known(self) -> set[Prefix]:
        """All prefixes of all requests."""
        known: set[Prefix] = set()
        for request in self.requests.values():
            known.update(self.prefixes(request, self.path(request)))
        return known

    def asks(self, request: Request) -> bool:
        """Whether a new request must be looked up."""
        known = self.known()
        path = self.prefixes(request, self.path(request))
        shared = [prefix for prefix in path if prefix in known]
        return len(shared) < len(path) and all(prefix in self.cached for prefix in shared)

    def add(self, request: Request, found: int) -> None:
        asks = self.asks(request)
        self.requests[request.request_id] = request
        if asks:
            self.settle(request, found)

    def remove(self, request: Request) -> None:
        del self.requests[request.request_id]
        self.running.discard(request.request_id)
        self.storing.discard(request.request_id)
        self.cached &= self.known()

    def cover(self, request: Request, tokens: int) -> None:
        whole = tokens // self.block_size * self.block_size
        self.cached.update(self.prefixes(request, request.run[: whole * 4]))
        self.cached &= self.known()

    def settle(self, request: Request, tokens: int) -> None:
        path = self.prefixes(request, self.path(request))
        found = tokens // self.block_size
        self.cached.update(path[:found])
        if found < len(path):
            key, beyond = path[found]
            self.cached = {
                (other, run)
                for other, run in self.cached
                if not (other == key and run.startswith(beyond))
            }

    def cached_blocks(self, request: Request) -> int:
        return sum(prefix in self.cached for prefix in self.prefixes(request, self.path(request)))

    def blocked(self, request: Request) -> bool:
        path = self.prefixes(request, self.path(request))
        cached = self.cached_blocks(request)
        if cached == len(path):
            return False
        return any(
            path[cached] in self.prefixes(other, self.path(other))
            for other in self.requests.values()
            if other.request_id in self.storing
        )

    def waiting(self) -> list[Request]:
        return [r for r in self.requests.values() if r.request_id not in self.running]

    def through(self, key: bytes, prefix: bytes) -> list[Request]:
        """The requests whose path begins so."""
        return [
            request
            for request in self.requests.values()
            if request.namespace.key == key and self.path(request).startswith(prefix)
        ]

    # The orders: who may come first, of ``offered``

    def longest_match(self, offered: list[Request]) -> list[Request]:
        free = [request for request in offered if not self.blocked(request)]
        return sorted(free, key=lambda r: (-self.cached_blocks(r), r.arrival))[:1]

    def depth_first(self, offered: list[Request], last: Request | None) -> list[Request]:
        """More than one where branches are equally heavy; none while others wait for what a running
        request computes of the last one's path."""
        free = [request for request in offered if not self.blocked(request)]
        if not free or self._way_is_blocked(last):
            return []
        shared = {request.request_id: self._shared(request, last) for request in free}
        most = max(shared.values())
        near = [request for request in free if shared[request.request_id] == most]
        if most >= 0:
            path = self.path(near[0])[: most * self.block_size * 4]
            return self._heaviest(near, near[0].namespace.key, path)
        keys = {request.namespace.key for request in near}
        weights = {key: self._weight(key, b"") for key in keys}
        return [
            choice
            for key in keys
            if weights[key] == max(weights.values())
            for choice in self._heaviest([r for r in near if r.namespace.key == key], key, b"")
        ]

    def _way_is_blocked(self, last: Request | None) -> bool:
        """Whether somebody waits for a block that lies on the path of the one taken last."""
        if last is None:
            return False
        theirs = self.prefixes(last, self.path(last))
        return any(
            self.prefixes(request, self.path(request))[self.cached_blocks(request)] in theirs
            for request in self.waiting()
            if self.blocked(request)
        )

    def _heaviest(self, near: list[Request], key: bytes, path: bytes) -> list[Request]:
        here = [request for request in near if self.path(request) == path]
        if here:
            return [min(here, key=lambda r: r.arrival)]
        longer = len(path) + self.block_size * 4
        branches = {self.path(request)[:longer] for request in near}
        weights = {branch: self._weight(key, branch) for branch in branches}
        return [
            choice
            for branch in branches
            if weights[branch] == max(weights.values())
            for choice in self._heaviest(
                [request for request in near if self.path(request).startswith(branch)], key, branch
            )
        ]

    def _weight(self, key: bytes, prefix: bytes) -> int:
        return sum(r.request_id not in self.running for r in self.through(key, prefix))

    def _shared(self, request: Request, last: Request | None) -> int:
        """Blocks that a path shares with the last one's; -1: not even the namespace."""
        if last is None or request.namespace.key != last.namespace.key:
            return -1
        theirs = self.prefixes(last, self.path(last))
        return sum(prefix in theirs for prefix in self.prefixes(request, self.path(request)))

    def response_ratio(self, offered: list[Request], now: float) -> list[Request]:
        def ratio(request: Request) -> float:
            cached = self.cached_blocks(request) * self.block_size
            cost = max(1, request.num_prompt_tokens - cached)
            return (now - request.arrived_s) / cost

        return sorted(offered, key=lambda r: (-ratio(r), r.arrival))[:1]


def nodes_below(root: TrieNode) -> Iterator[tuple[TrieNode, bytes, bytes]]:
    """Each node but the root, with its namespace's key and the prompt's bytes up to its end."""
    pending = [(node, node.key, b"") for node in root.children.values()]
    while pending:
        node, key, run = pending.pop()
        yield node, key, run
        for child in node.children.values():
            own = child.source[child.start : child.end] if child.run is None else child.run
            pending.append((child, key, run + own))
