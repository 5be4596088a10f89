"""What the queue needs of an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scheduler.request import Request


class Order(Protocol):
    """The waiting requests of one trie, and who of them comes first.

    ``lpm`` and ``dfs`` leave out requests that are blocked in the trie, for as long as they are;
    the others leave that to the caller.
    """

    def add(self, request: Request) -> None:
        """The request, which is in the trie, waits from now on, or again."""
        ...

    def discard(self, request: Request) -> None:
        """The request waits no longer; comes before it leaves the trie. Again is a no-op."""
        ...

    def best(self, now: float) -> Request | None:
        """Take out the request that comes first at ``now`` (seconds), or None where there is none.

        The caller starts it in the trie, removes it from there, or puts it back with ``add``.
        """
        ...
