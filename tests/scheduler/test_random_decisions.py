"""Families of answers that wait for each other, as beams do, over any memory: nobody hangs."""

from __future__ import annotations

import random

import pytest

from scheduler import Limits, Request, State
from tests.cache.trees import ids
from tests.checking_model import Bench, answer_alone, answer_of
from tests.scheduler.steps import decide, sampled, step_with


class Family:
    """Requests of one prompt. Their next tokens are decided together, once all are sampled; then
    some end, and others fork. ``expected``: all tokens that each must have."""

    def __init__(self, bench: Bench, prompt: list[int], width: int, new: int) -> None:
        self.bench, self.new = bench, new
        first = bench.submit(prompt, new, branches=width - 1)
        self.spares = list(first.branches)
        self.members = [first]
        self.sampled: set[Request] = set()
        self.expected = {first: prompt}
        self.width = width

    def is_ready(self) -> bool:
        return bool(self.members) and self.sampled == set(self.members)

    def go_on(self, draw: random.Random) -> None:
        """Each new member follows one of the old ones, as in a beam search."""
        bench, old = self.bench, self.members
        chosen: dict[Request, list[int]] = {}
        self.members = []
        for place in range(self.width):
            parent = draw.choice(old)
            tokens = chosen.setdefault(parent, [])
            tokens.append(sampled(bench, parent) if not tokens else place)
            self.members.append(parent if len(tokens) == 1 else self.branch_of(parent))
        for request in [*self.spares, *old]:
            if request not in self.members:
                bench.scheduler.finish(request)
        self.spares.clear()
        self.sampled.clear()
        for parent, tokens in chosen.items():
            family = [parent, *parent.branches]
            before = list(parent.tokens)
            decide(bench, parent, *tokens)
            for request, token in zip(family, tokens, strict=True):
                self.expected[request] = [*before, token]
        self.members = [r for r in self.members if r.state is not State.FINISHED]

    def branch_of(self, parent: Request) -> Request:
        if self.spares:
            return self.spares.pop(0)
        number = max(request.request_id for request in self.bench.requests) + 1
        prompt = parent.tokens[: parent.num_prompt_tokens]
        branch = Request(number, prompt, self.new)
        parent.branches.append(branch)
        self.bench.requests.append(branch)
        return branch


def play(seed: int, blocks: int, size: int, running: int) -> Bench:
    draw = random.Random(seed)
    bench = Bench(blocks, size, Limits(max_step_tokens=2 * running, max_running=running))
    families, plain = [], []
    for number in range(4):
        length = draw.randint(1, blocks * size // 2)
        new = draw.randint(1, blocks * size // 2)
        prompt = ids(length, draw.randrange(2))
        if number % 2:
            families.append(Family(bench, prompt, draw.randint(2, min(4, running)), new))
        else:
            plain.append(bench.submit(prompt, new))
    for _ in range(60 * blocks * size):
        ready = [family for family in families if family.is_ready()]
        for family in ready:
            family.go_on(draw)
        of = {request: family for family in families for request in family.members}

        def choose(request: Request, of: dict[Request, Family] = of) -> list[int | None]:
            if request in of:
                of[request].sampled.add(request)
                return [None]
            return [sampled(bench, request)] * request.width

        if not bench.scheduler.has_work and not ready:
            break
        plan = step_with(bench, choose)
        assert plan.num_tokens <= bench.limits.step_tokens
        assert bench.scheduler.num_running <= running
        assert not plan.ended
        assert plan.spans or plan.preempted or ready or not bench.scheduler.has_work
    assert not any(family.members for family in families)
    for request in plain:
        prompt = request.tokens[: request.num_prompt_tokens].tolist()
        assert answer_of(request) == answer_alone(prompt, request.max_new_tokens)
    for family in families:
        for request, tokens in family.expected.items():
            assert request.tokens.tolist() == tokens
    bench.assert_idle()
    return bench


@pytest.mark.parametrize(
    ("blocks", "size", "running"), [(4, 4, 4), (6, 4, 3), (12, 4, 5), (5, 16, 4), (24, 1, 4)]
)
def test_families_that_wait_for_each_other_get_on_in_any_memory(
    blocks: int, size: int, running: int
) -> None:
    preemptions = 0
    for seed in range(12):
        preemptions += play(seed, blocks, size, running).scheduler.counters.preemptions
    assert preemptions > 20
