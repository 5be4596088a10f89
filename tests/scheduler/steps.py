"""Steps that `Bench.step` does not take: tokens that the test chooses, or leaves undecided."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler import Request, State, StepPlan
from tests.checking_model import Bench, answer_alone, answer_of, next_token

Choice = Callable[[Request], Sequence[int | None]]  # a token for it, and one for each branch


def sampled(bench: Bench, request: Request) -> int:
    """What the model answers to all tokens of the request."""
    return next_token(bench.model._prefix(request)[-1])


def step_with(bench: Bench, choose: Choice) -> StepPlan:
    """One step, whose new tokens are the chosen ones."""
    plan = bench.scheduler.plan(bench.now)
    assert bench.scheduler.audit() == []
    bench.model.step(plan)
    tokens = [token for span in plan.sampling for token in choose(span.request)]
    bench.results = bench.scheduler.commit(plan, tokens)
    bench.computed += plan.num_tokens
    assert bench.scheduler.audit() == []
    assert bench.scheduler.sum_problem() is None
    return plan


def step_leaving(bench: Bench, *undecided: Request) -> StepPlan:
    """One step, after which these are undecided if they were to get a token."""

    def choose(request: Request) -> Sequence[int | None]:
        if request in undecided:
            return [None]
        return [sampled(bench, request)] * request.width

    return step_with(bench, choose)


def fork_with(bench: Bench, parent: Request, *tokens: int) -> list[Request]:
    """Step until the parent's branches fork off with these tokens; the parent and its branches."""
    family = [parent, *parent.branches]

    def choose(request: Request) -> Sequence[int | None]:
        return tokens if request is parent else [sampled(bench, request)] * request.width

    while parent.branches:
        step_with(bench, choose)
    return family


def decide(bench: Bench, request: Request, *tokens: int) -> None:
    """Give an undecided request, and its branches, these tokens; what the model says if none."""
    chosen = tokens or [sampled(bench, request)] * request.width
    bench.results = bench.scheduler.resume(request, chosen)
    assert bench.scheduler.audit() == []
    assert bench.scheduler.sum_problem() is None


def goes_on_rightly(request: Request) -> bool:
    """Whether it has the whole answer that follows from its first token, whatever that was."""
    prompt = request.tokens[: request.num_prompt_tokens]
    first, *rest = answer_of(request)
    return rest == answer_alone([*prompt, first], request.max_new_tokens - 1)


def assert_idle_but(bench: Bench, quarantined: int) -> None:
    """Nothing waits, runs, is pinned or is lost, apart from blocks in quarantine."""
    pool = bench.cache.pool
    assert not bench.scheduler.has_work
    assert bench.scheduler.audit() == []
    assert pool.private_blocks == pool.in_flight_blocks == 0
    assert pool.tree_blocks == bench.cache.evictable_blocks
    assert pool.free_blocks + pool.tree_blocks == pool.num_blocks - quarantined
    assert pool.quarantined_blocks == quarantined


def quarantine(bench: Bench, blocks: int) -> None:
    """Take so many free blocks out of use."""
    pool = bench.cache.pool
    for block in pool.free_list()[:blocks]:
        pool.quarantine(block)
    assert pool.quarantined_blocks == blocks


def step_in_order(bench: Bench, abort: Sequence[Request] = ()) -> StepPlan:
    """One step, in which nobody is passed too often and who goes first is passed by nobody."""
    scheduler, bound = bench.scheduler, bench.limits.max_passed_by
    waiting = [request for request in scheduler.requests() if request.state is State.WAITING]
    first = [r for r in waiting if r.preemptions > 0 or scheduler.passed_by(r) >= bound]
    plan = bench.step(abort)
    started = [span.request for span in plan.spans if span.request in waiting]
    for request in [] if abort else first:  # else somebody may have started and been sent back
        if request.state is State.WAITING:
            for other in started:
                in_turn = bench.fair and other.namespace.tenant != request.namespace.tenant
                if request.preemptions or not (other.preemptions or in_turn):
                    assert other.arrival <= request.arrival
    assert scheduler.most_passed_by <= bound
    for request in waiting:
        if request.state is State.WAITING and not request.preemptions:
            assert scheduler.passed_by(request) <= bound
    return plan
