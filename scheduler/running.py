"""The requests that hold blocks."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler import holding
from scheduler.budget import blocks_missing
from scheduler.holding import Cache
from scheduler.request import Request, State
from scheduler.values import payload_of


class Running:
    """In order of admission, and which of them have announced blocks in the step that is planned,
    and in the one that is being computed meanwhile."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._requests: dict[int, Request] = {}
        self._announced: dict[int, Request] = {}  # owners before those who attached to them
        self._computing: dict[int, Request] = {}  # those of the step before

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._requests

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    @property
    def width(self) -> int:
        """How many there will be when all their branches have forked off."""
        return sum(1 + len(request.branches) for request in self._requests.values())

    def add(self, request: Request) -> None:
        """A request holds blocks from now on."""
        request.state = State.RUNNING
        self._requests[request.request_id] = request

    def let_go(self, request: Request) -> list[Request]:
        """A request gives all it holds back.

        Returns the others that must start again, because they stand on what it announced.
        """
        self._requests.pop(request.request_id, None)
        announced = self._announced.pop(request.request_id, None)
        computing = self._computing.pop(request.request_id, None)
        holding.let_go(self._cache, request)
        if announced is None and computing is None:
            return []
        return [other for other in self if self._cache.is_broken(other.lease)]

    def announce(self, request: Request, end: int) -> bool:
        """Let others attach to what the step computes of this request, up to token ``end``."""
        if request.request_id in self._computing:
            return False  # one step's blocks at a time: they are told apart by their owner
        announced = holding.announce(self._cache, request, end)
        if announced:
            self._announced[request.request_id] = request
        return announced

    def go_ahead(self) -> None:
        """The step is being computed; what is announced from now on is the next one's."""
        self._computing, self._announced = self._announced, {}

    def commit(self, *, ahead: bool) -> None:
        """What was announced for the step has been computed; ``ahead``: for the one that others
        have gone ahead of."""
        done = self._computing if ahead else self._announced
        for request in done.values():
            lease = request.lease
            assert lease is not None
            start = lease.num_tokens - lease.in_flight_tokens
            self._cache.commit(lease, payload_of(request, start, lease.num_tokens))
        done.clear()

    def reserved_blocks(self) -> int:
        """Blocks kept for their growth. Cost: O(running)."""
        return sum(growth(request, self._cache.block_size) for request in self)


def growth(request: Request, block_size: int) -> int:
    """Blocks kept for a running request and its branches: the rest of its tokens, and the next
    block of each."""
    tokens = len(request.tokens) + block_size
    missing = blocks_missing(tokens, len(request.block_table), block_size)
    return missing + 2 * len(request.branches)
