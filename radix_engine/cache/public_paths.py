"""Prefixes that an operator has marked public: every namespace shares them."""

from __future__ import annotations

from bisect import bisect_left, insort

from radix_engine.cache.namespace import Namespace
from radix_engine.cache.token_run import common_prefix_bytes


class PublicPaths:
    """The marked runs, by the weights and adapter they hold for.

    A namespace of its own continues below the longest public run that its prompt begins with, in
    whole blocks.
    """

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._runs: dict[Namespace, list[bytes]] = {}
        self._ever: dict[Namespace, list[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._runs)

    def mark(self, run: bytes, namespace: Namespace) -> None:
        """Share this prefix from now on; only whole blocks of it count. Cost: O(marked runs)."""
        runs = self._runs.setdefault(namespace.shared, [])
        run = run[: len(run) // self._block_bytes * self._block_bytes]
        if run and run not in runs:
            insort(runs, run)
            ever = self._ever.setdefault(namespace.shared, [])
            if run not in ever:
                ever.append(run)

    def unmark(self, run: bytes, namespace: Namespace) -> bool:
        """Share it no longer. What is stored below it is not found any more and leaves in time.

        False if it was not marked.
        """
        runs = self._runs.get(namespace.shared, [])
        run = run[: len(run) // self._block_bytes * self._block_bytes]
        if run not in runs:
            return False
        runs.remove(run)
        if not runs:
            del self._runs[namespace.shared]
        return True

    def ever(self, shared: Namespace) -> list[bytes]:
        """The runs that are or were marked for a shared namespace."""
        return self._ever.get(shared, [])

    def covered_bytes(self, tokens: bytes, namespace: Namespace) -> int:
        """How much of a prompt, in whole blocks, is public to this namespace.

        0 for the shared namespace itself, which needs no boundary. Cost: O(log marked runs) and one
        compare.
        """
        shared = namespace.shared
        if namespace == shared:
            return 0
        runs = self._runs.get(shared)
        if not runs:
            return 0
        place = bisect_left(runs, tokens)
        near = runs[max(0, place - 1) : place + 1]
        return max(common_prefix_bytes(tokens, 0, run, self._block_bytes) for run in near)
