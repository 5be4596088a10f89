"""A model stand-in for tests, which finds out whether the right K and V are where they should be.

It needs no weights. Its KV memory keeps, for each row of each block, a hash of the whole token
prefix up to that row's token: what K and V depend on in a real model. A step writes the rows it
computes, then reads every row that its requests' attention would read, and compares. A block that
is wrong, stale, overwritten or freed too early is found at once, and by content.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from radix_engine.cache import (
    DEFAULT,
    BlockPool,
    CacheMode,
    Namespace,
    PrefixCache,
    PrefixIndex,
)
from radix_engine.cache.block_pool import IN_FLIGHT, PRIVATE
from scheduler import Limits, NewToken, Request, ScheduledSpan, Scheduler, State, StepPlan

VOCABULARY = 50
EMPTY_PREFIX = 0x5EED
POISON = -1


class WrongMemory(AssertionError):
    """A step read or wrote a row that it should not have."""


def prefix_hashes(tokens: Iterable[int], start: int = EMPTY_PREFIX) -> list[int]:
    """One hash a token, of that token and all before it."""
    hashes = []
    value = start
    for token in tokens:
        value = hash((value, token))
        hashes.append(value)
    return hashes


def next_token(prefix_hash: int) -> int:
    """What the model answers to a prefix."""
    return (prefix_hash >> 7) % VOCABULARY


def answer_alone(
    prompt: Iterable[int], max_new_tokens: int, stop_token_ids: frozenset[int] = frozenset()
) -> list[int]:
    """The answer to a prompt that is computed by itself, with no cache, batch or memory."""
    value = prefix_hashes(prompt)[-1]
    answer: list[int] = []
    while len(answer) < max_new_tokens and not (answer and answer[-1] in stop_token_ids):
        answer.append(next_token(value))
        value = prefix_hashes(answer[-1:], value)[0]
    return answer


class PoisoningPool(BlockPool):
    """A block pool that has the rows of every block that is freed spoiled.

    They are spoiled when the next step begins, after its copies: until then memory is as the last
    step left it.
    """

    freed: set[int]

    def free_private(self, blocks: array[int]) -> None:
        super().free_private(blocks)
        self.freed.update(blocks)

    def free_from_tree(self, blocks: array[int]) -> None:
        super().free_from_tree(blocks)
        self.freed.update(blocks)

    def withdraw(self, blocks: array[int]) -> None:
        super().withdraw(blocks)
        self.freed.update(blocks)


class CheckingModel:
    """Computes plans over the blocks of one fresh cache."""

    def __init__(self, cache: PrefixIndex[Any, Any]) -> None:
        self.pool: Any = cache.pool
        self.block_size = cache.block_size
        self.rows = [[POISON] * cache.block_size for _ in range(cache.pool.num_blocks)]
        assert cache.pool.free_blocks == cache.pool.num_blocks, "the cache has been used already"
        self.pool = cache.pool
        self.pool.__class__ = PoisoningPool  # which the cache has handed on to its parts already
        self.pool.freed = set()
        self._hashes: dict[Request, list[int]] = {}

    def step(self, plan: StepPlan) -> list[int]:
        """Compute all spans of a plan; the new tokens of ``plan.sampling``, in its order.

        Raises WrongMemory where a row is missing, is another's, or belongs to somebody else.
        """
        self._copy(plan)
        writers: dict[int, Request] = {}
        for span in plan.spans:
            self._write(span, writers)
        for span in plan.spans:
            self._read(span)
        tokens = []
        for span in plan.sampling:
            token = next_token(self._prefix(span.request)[-1])
            tokens.extend([token] * span.request.width)
        return tokens

    def _copy(self, plan: StepPlan) -> None:
        copied = {}
        for source, target, rows in plan.copies:
            copied[target] = self.rows[source][:rows]
            if POISON in copied[target]:
                raise WrongMemory(f"rows of block {source} are copied, and never were written")
        for block in self.pool.freed:
            self.rows[block][:] = [POISON] * self.block_size
        self.pool.freed.clear()
        for block, rows_of_block in copied.items():
            self.rows[block][: len(rows_of_block)] = rows_of_block

    def _prefix(self, request: Request) -> list[int]:
        known = self._hashes.setdefault(request, [])
        start = known[-1] if known else EMPTY_PREFIX
        known.extend(prefix_hashes(request.tokens[len(known) :], start))
        return known

    def _write(self, span: ScheduledSpan, writers: dict[int, Request]) -> None:
        request, size = span.request, self.block_size
        name = f"request {request.request_id}"
        hashes = self._prefix(request)
        end = span.start + span.count
        if span.count < 1 or end > len(hashes):
            raise WrongMemory(f"{name}: positions {span.start} to {end} of {len(hashes)} tokens")
        if end > len(request.block_table) * size:
            raise WrongMemory(f"{name}: {len(request.block_table)} blocks do not cover {end}")
        for index in range(span.start // size, (end - 1) // size + 1):
            block = request.block_table[index]
            if self.pool.owner_of(block) not in (PRIVATE, IN_FLIGHT):
                raise WrongMemory(f"{name} writes block {block}, which is not its own")
            if writers.setdefault(block, request) is not request:
                raise WrongMemory(f"{name} writes block {block}, and another does so too")
            first, last = max(span.start, index * size), min(end, (index + 1) * size)
            self.rows[block][first - index * size : last - index * size] = hashes[first:last]

    def _read(self, span: ScheduledSpan) -> None:
        request, size = span.request, self.block_size
        hashes = self._prefix(request)
        end = span.start + span.count
        for index in range((end - 1) // size + 1):
            expected = hashes[index * size : min(end, (index + 1) * size)]
            block = request.block_table[index]
            found = self.rows[block][: len(expected)]
            if found != expected:
                what = "was never written or is freed" if POISON in found else "is another prefix's"
                raise WrongMemory(
                    f"request {request.request_id} reads block {block} for its tokens from "
                    f"{index * size} on, which {what}"
                )


def whole_blocks(num_blocks: int, block_size: int) -> PrefixCache:
    """The tree, whose matches end at whole blocks."""
    return PrefixCache(num_blocks, block_size, partial_blocks=False)


@dataclass
class Bench:
    """A scheduler over a fresh cache and the checking model; every step is audited."""

    num_blocks: int
    block_size: int = 16
    limits: Limits = field(default_factory=Limits)
    make_cache: Callable[[int, int], Any] = whole_blocks
    order: str = "lpm"
    fair: bool = False

    def __post_init__(self) -> None:
        self.cache = self.make_cache(self.num_blocks, self.block_size)
        self.model = CheckingModel(self.cache)
        self.scheduler = Scheduler(self.cache, self.limits, self.order, fair=self.fair)
        self.now = 0.0
        self.requests: list[Request] = []
        self.results: list[NewToken] = []  # of the last step
        self.computed = 0  # tokens, over all steps

    def submit(
        self,
        prompt: Sequence[int],
        max_new_tokens: int = 1,
        stop_token_ids: frozenset[int] = frozenset(),
        *,
        mode: CacheMode = CacheMode.DEFAULT,
        namespace: Namespace = DEFAULT,
        branches: int = 0,
        priority: int = 0,
        deadline: float | None = None,
        session: str | None = None,
    ) -> Request:
        new = [
            Request(
                len(self.requests) + 1 + index,
                prompt,
                max_new_tokens,
                stop_token_ids,
                mode=mode,
                namespace=namespace,
                priority=priority,
                deadline=deadline,
                session=session,
            )
            for index in range(1 + branches)
        ]
        new[0].branches = new[1:]
        self.scheduler.submit(new[0], self.now)
        self.requests.extend(new)
        return new[0]

    def step(self, abort: Sequence[Request] = ()) -> StepPlan:
        """Plan, compute and commit one step, and check what must hold of every one.

        ``abort`` are ended after the plan was made and before it is computed.
        """
        decoding = [
            request
            for request in self.scheduler.requests()
            if request.state is State.RUNNING and request.remaining_tokens == 1
        ]
        plan = self.scheduler.plan(self.now)
        assert plan.spans or plan.ended or not self.scheduler.has_work, "nothing is computed"
        assert plan.num_tokens <= self.limits.step_tokens
        assert self.scheduler.num_running <= self.limits.max_running
        scheduled = [span.request for span in plan.spans]
        assert len({id(request) for request in scheduled}) == len(scheduled)
        left_out = [*plan.preempted, *(ended.request for ended in plan.ended)]
        assert all(request in scheduled or request in left_out for request in decoding)
        assert self.scheduler.audit() == []
        assert self.scheduler.sum_problem() is None
        for request in abort:
            self.scheduler.abort(request)
        planned, plan = plan, plan.still_running
        assert abort or plan.spans == planned.spans
        self.results = self.scheduler.commit(plan, self.model.step(plan))
        self.computed += plan.num_tokens
        assert self.scheduler.audit() == []
        self.check_queue()
        return plan

    def check_queue(self) -> None:
        """Each tenant's waiting requests are counted, without those that have run before."""
        scheduler = self.scheduler
        waiting = [
            request.namespace.tenant
            for request in scheduler.requests()
            if request.state is State.WAITING and not request.preemptions
        ]
        for tenant in {request.namespace.tenant for request in self.requests}:
            assert scheduler.num_new_waiting_of(tenant) == waiting.count(tenant)
        assert scheduler.num_new_waiting == len(waiting)

    def run(self) -> list[StepPlan]:
        """Step until nothing is left to do.

        The request that runs longest is never preempted and gets at least a token in each step, so
        there are at most as many steps as tokens.
        """
        most = sum(len(request.tokens) + request.max_new_tokens for request in self.requests)
        plans = []
        while self.scheduler.has_work:
            plans.append(self.step())
            assert len(plans) <= most, "no end in sight"
        return plans

    def answer(self, prompt: Sequence[int], max_new_tokens: int = 1) -> Request:
        """Serve one request to its end."""
        request = self.submit(prompt, max_new_tokens)
        self.run()
        return request

    def assert_idle(self) -> None:
        """Nothing waits, runs, is pinned or is lost."""
        pool = self.cache.pool
        assert not self.scheduler.has_work
        assert self.scheduler.audit() == []
        assert pool.private_blocks == 0
        assert pool.tree_blocks == self.cache.evictable_blocks, "somebody still pins blocks"
        assert pool.free_blocks + pool.tree_blocks == pool.num_blocks
        assert pool.in_flight_blocks == 0
        assert getattr(self.cache, "detached", []) == []


def hold_back(bench: Bench, request: Request) -> None:
    """Take the request that is tried next out of the queue; ``_waiting.put_back`` ends that."""
    candidate = bench.scheduler._waiting.next(0.0)
    assert candidate is not None
    assert candidate.request is request


def answer_of(request: Request) -> list[int]:
    """What was generated."""
    return request.tokens[request.num_prompt_tokens :].tolist()


def answer_alone_of(request: Request) -> list[int]:
    """What should have been."""
    prompt = request.tokens[: request.num_prompt_tokens]
    return answer_alone(prompt, request.max_new_tokens, request.stop_token_ids)
