"""A request as the scheduler sees it: tokens to compute, and what it holds meanwhile."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import Enum

from radix_engine.cache import (
    DEFAULT,
    MISSING_PAYLOAD,
    TOKEN_BYTES,
    CacheMode,
    LeaseView,
    MatchEnd,
    MatchView,
    Namespace,
    token_array,
)


class State(Enum):
    """Where a request stands. A preempted one is WAITING again, or PARKED, where its next token is
    undecided and there is nothing to compute before that is known; a BRANCH waits for the request
    that it forks off to compute their common prompt."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    BRANCH = "branch"
    PARKED = "parked"


class Request:
    """One prompt and its answer so far.

    There is no prefill phase and no decode phase: ``num_computed_tokens`` (those whose K/V exist)
    catches up with ``len(tokens)``, and whenever it has, one more token is sampled. The last
    sampled token has no K/V yet. Only the scheduler changes a request.

    ``max_new_tokens`` is exact: the answer ends with it, unless one of ``stop_token_ids`` comes
    first. ``namespace``: whose prefixes it may share; ``mode``: whether it reads them, and whether
    it stores its own. ``priority``: the higher, the earlier, where the order is by priority.
    ``deadline``: when it ends at the latest, in seconds of the scheduler's clock. ``session``: the
    client's name for requests that belong together, if it gave one. ``request_id`` is the caller's,
    and internal: two requests of one client that carry the same name differ in it.

    ``wants_values``: each token of the prompt but the first has a value (a float32, such as its
    log-probability), which the caller finds out where the prompt is computed (`learn`). The cache
    keeps them with the tokens, and the request is served only as far as it has them.
    """

    __slots__ = (
        "admitted_s",
        "ahead",
        "arrival",
        "arrived_s",
        "block_table",
        "branches",
        "cached_tokens",
        "deadline",
        "is_guessed",
        "lease",
        "match",
        "match_end",
        "max_new_tokens",
        "mode",
        "most_computed_tokens",
        "namespace",
        "near",
        "num_computed_tokens",
        "num_prompt_tokens",
        "payload",
        "preemptions",
        "priority",
        "request_id",
        "run",
        "session",
        "state",
        "stop_token_ids",
        "stores",
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
        priority: int = 0,
        deadline: float | None = None,
        session: str | None = None,
        wants_values: bool = False,
    ) -> None:
        self.request_id = request_id
        self.tokens = token_array(prompt)
        self.num_prompt_tokens = len(self.tokens)
        if not self.tokens:
            raise ValueError("a request needs a prompt of at least 1 token")
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
        self.run = self.tokens.tobytes()  # the prompt, as the cache takes it
        self.max_new_tokens = max_new_tokens
        self.stop_token_ids = stop_token_ids
        self.namespace = namespace
        self.mode = mode
        self.stores = mode.stores
        self.priority = priority
        self.deadline = deadline
        self.session = session
        # Those known, from the first token on, as the cache takes them.
        self.payload = bytearray(MISSING_PAYLOAD) if wants_values else None

        self.state = State.WAITING
        self.arrival = 0  # place in the order of arrival, set when it is queued
        self.arrived_s = 0.0  # when, on the scheduler's clock
        self.admitted_s: float | None = None  # when it first started, likewise
        self.match: MatchView | None = None  # the last look-up, good for one version of the cache
        self.near: MatchView | None = None  # an older one, for the next to go on from
        self.preemptions = 0
        self.branches: list[Request] = []  # fork off when the next token is sampled

        self.lease: LeaseView | None = None
        self.block_table: array[int] = token_array()
        self.num_computed_tokens = 0
        self.ahead = 0  # of these, tokens that a step is computing right now
        self.is_guessed = False  # whether the last token stands for one that this step samples
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

    @property
    def width(self) -> int:
        """Requests that run at a time once its branches have forked off."""
        return 1 + len(self.branches)

    @property
    def num_valued_tokens(self) -> int:
        """The first tokens whose values are known; the very first needs none."""
        return 0 if self.payload is None else len(self.payload) // TOKEN_BYTES

    def learn(self, values: Iterable[float]) -> None:
        """The values of the next tokens after those known, of a request that wants them."""
        assert self.payload is not None
        self.payload += array("f", values).tobytes()

    @property
    def whole_run(self) -> bytes:
        """All tokens so far, as the cache takes them: more than the prompt after a preemption."""
        if len(self.tokens) == self.num_prompt_tokens:
            return self.run
        return self.tokens.tobytes()

    def finish_reason(self, token: int) -> str | None:
        """Why the answer ends with this token, its newest; None where it goes on."""
        if token in self.stop_token_ids:
            return "stop"
        if len(self.tokens) - self.num_prompt_tokens >= self.max_new_tokens:
            return "length"
        return None

    def private_tail(self, block_size: int) -> array[int]:
        """The blocks that this request alone owns."""
        leased = 0 if self.lease is None else self.lease.num_tokens // block_size
        return self.block_table[leased:]
