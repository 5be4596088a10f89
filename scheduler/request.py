"""A request as the scheduler sees it: tokens to compute, and what it holds meanwhile."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import Enum

from radix_engine.cache import (
    DEFAULT,
    CacheMode,
    LeaseView,
    MatchEnd,
    MatchView,
    Namespace,
    token_array,
)


class State(Enum):
    """Where a request stands. A preempted one is WAITING again."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Request:
    """One prompt and its answer so far.

    There is no prefill phase and no decode phase: ``num_computed_tokens`` (those whose K/V exist)
    catches up with ``len(tokens)``, and whenever it has, one more token is sampled. The last
    sampled token has no K/V yet. Only the scheduler changes a request.

    ``max_new_tokens`` is exact: the answer ends with it, unless one of ``stop_token_ids`` comes
    first. ``namespace``: whose prefixes it may share; ``mode``: whether it reads them, and whether
    it stores its own.
    """

    __slots__ = (
        "arrival",
        "block_table",
        "cached_tokens",
        "lease",
        "match",
        "match_end",
        "max_new_tokens",
        "mode",
        "most_computed_tokens",
        "namespace",
        "num_computed_tokens",
        "num_prompt_tokens",
        "passed_by",
        "preemptions",
        "request_id",
        "state",
        "stop_token_ids",
        "tokens",
    )

    def __init__(
        self,
        request_id: int,
        prompt: Iterable[int],
        max_new_tokens: int,
        stop_token_ids: frozenset[int] = frozenset(),
        *,
        namespace: Namespace = DEFAULT,
        mode: CacheMode = CacheMode.DEFAULT,
    ) -> None:
        self.request_id = request_id
        self.tokens = token_array(prompt)
        self.num_prompt_tokens = len(self.tokens)
        if not self.tokens:
            raise ValueError("a request needs a prompt of at least 1 token")
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
        self.max_new_tokens = max_new_tokens
        self.stop_token_ids = stop_token_ids
        self.namespace = namespace
        self.mode = mode

        self.state = State.WAITING
        self.arrival = 0  # place in the order of arrival, set when it is queued
        self.match: MatchView | None = None  # the last look-up, good for one version of the cache
        self.passed_by = 0  # later arrivals admitted before it
        self.preemptions = 0

        self.lease: LeaseView | None = None
        self.block_table: array[int] = token_array()
        self.num_computed_tokens = 0
        self.most_computed_tokens = 0  # before the last preemption: below this, computing is again
        self.cached_tokens: int | None = None  # of the prompt, fixed at first admission
        self.match_end: MatchEnd | None = None  # why no more were cached, fixed likewise

    @property
    def num_new_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def remaining_tokens(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return len(self.tokens) - self.num_computed_tokens

    def private_tail(self, block_size: int) -> array[int]:
        """The blocks that this request alone owns."""
        leased = 0 if self.lease is None else self.lease.num_tokens // block_size
        return self.block_table[leased:]
