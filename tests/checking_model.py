"""A model stand-in for tests, which finds out whether the right K and V are where they should be.

It needs no weights. Its KV memory keeps, for each row of each block, a hash of the whole token
prefix up to that row's token: what K and V depend on in a real model. A step writes the rows it
computes, then reads every row that its requests' attention would read, and compares. A block that
is wrong, stale, overwritten or freed too early is found at once, and by content.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from radix_engine.cache import BlockPool, PrefixCache
from radix_engine.cache.block_pool import PRIVATE
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
    """A block pool that spoils the rows of every block that is freed."""

    def __init__(self, num_blocks: int, rows: list[list[int]]) -> None:
        super().__init__(num_blocks)
        self._rows = rows

    def free_private(self, blocks: array[int]) -> None:
        super().free_private(blocks)
        self._spoil(blocks)

    def free_from_tree(self, blocks: array[int]) -> None:
        super().free_from_tree(blocks)
        self._spoil(blocks)

    def _spoil(self, blocks: array[int]) -> None:
        for block in blocks:
            self._rows[block][:] = [POISON] * len(self._rows[block])


class CheckingModel:
    """Computes plans over the blocks of one fresh cache."""

    def __init__(self, cache: PrefixCache) -> None:
        self.pool = cache.pool
        self.block_size = cache.block_size
        self.rows = [[POISON] * cache.block_size for _ in range(cache.pool.num_blocks)]
        assert cache.pool.free_blocks == cache.pool.num_blocks, "the cache has been used already"
        self.pool = cache.pool = PoisoningPool(cache.pool.num_blocks, self.rows)
        self._hashes: dict[Request, list[int]] = {}

    def step(self, plan: StepPlan) -> list[int]:
        """Compute all spans of a plan; the new tokens of ``plan.sampling``, in its order.

        Raises WrongMemory where a row is missing, is another's, or belongs to somebody else.
        """
        writers: dict[int, Request] = {}
        for span in plan.spans:
            self._write(span, writers)
        for span in plan.spans:
            self._read(span)
        return [next_token(self._prefix(span.request)[-1]) for span in plan.sampling]

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
            if self.pool.owner_of(block) != PRIVATE:
                raise WrongMemory(f"{name} writes block {block}, which is not private")
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


@dataclass
class Bench:
    """A scheduler over a fresh cache and the checking model; every step is audited."""

    num_blocks: int
    block_size: int = 16
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.cache = PrefixCache(self.num_blocks, self.block_size)
        self.model = CheckingModel(self.cache)
        self.scheduler = Scheduler(self.cache, self.limits)
        self.requests: list[Request] = []
        self.results: list[NewToken] = []  # of the last step
        self.computed = 0  # tokens, over all steps

    def submit(
        self,
        prompt: Sequence[int],
        max_new_tokens: int = 1,
        stop_token_ids: frozenset[int] = frozenset(),
        *,
        uses_cache: bool = True,
    ) -> Request:
        request = Request(
            len(self.requests) + 1, prompt, max_new_tokens, stop_token_ids, uses_cache=uses_cache
        )
        self.scheduler.submit(request)
        self.requests.append(request)
        return request

    def step(self) -> StepPlan:
        """Plan, compute and commit one step, and check what must hold of every one."""
        decoding = [
            request
            for request in self.scheduler.requests()
            if request.state is State.RUNNING and request.remaining_tokens == 1
        ]
        plan = self.scheduler.plan()
        assert bool(plan.spans) == self.scheduler.has_work, "a step that computes nothing"
        assert plan.num_tokens <= self.limits.max_step_tokens
        assert self.scheduler.num_running <= self.limits.max_running
        scheduled = [span.request for span in plan.spans]
        assert len({id(request) for request in scheduled}) == len(scheduled)
        assert all(request in scheduled or request in plan.preempted for request in decoding)
        assert self.scheduler.audit() == []
        self.results = self.scheduler.commit(plan, self.model.step(plan))
        self.computed += plan.num_tokens
        assert self.scheduler.audit() == []
        return plan

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
        assert self.cache.detached == []


def answer_of(request: Request) -> list[int]:
    """What was generated."""
    return request.tokens[request.num_prompt_tokens :].tolist()


def answer_alone_of(request: Request) -> list[int]:
    """What should have been."""
    prompt = request.tokens[: request.num_prompt_tokens]
    return answer_alone(prompt, request.max_new_tokens, request.stop_token_ids)
