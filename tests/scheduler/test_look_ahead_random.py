"""Whatever comes while steps are planned ahead, answers are those of requests computed alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.cache import DEFAULT, CacheMode, Namespace, PrefixCache
from radix_engine.cache.flat import FlatCache
from scheduler import Limits, Request, State
from scheduler.order import ORDERS
from tests.cache.trees import ids
from tests.checking_model import answer_alone_of, answer_of
from tests.scheduler.look_ahead import LookAheadBench, Mishap

MODES = [CacheMode.DEFAULT] * 5 + [CacheMode.READ_ONLY, CacheMode.WRITE_ONLY, CacheMode.BYPASS]
TENANTS = [DEFAULT, DEFAULT, Namespace(tenant="other"), Namespace(tenant="third")]
KINDS = ("tree", "tree of whole blocks", "flat")
ARRIVALS = 14


def make_cache(kind: str, num_blocks: int, block_size: int) -> Any:
    if kind == "flat":
        return FlatCache(num_blocks, block_size)
    return PrefixCache(num_blocks, block_size, partial_blocks=kind == "tree")


@dataclass
class Load:
    """Requests that come and go at random, and what goes wrong meanwhile."""

    bench: LookAheadBench
    draw: random.Random
    cut_short: set[Request] = field(default_factory=set)

    def play(self) -> None:
        """Up to the end of the last request."""
        bench = self.bench
        room = bench.num_blocks * bench.block_size
        for _ in range(60 * room + 200):
            if self.arrived < ARRIVALS and self.chance(0.15):
                self.submit(room)
            if self.chance(0.02):
                bench.cache.flush()
            self.abort(self.victims())
            if bench.undecided and not bench.flying:
                left = set(bench.scheduler.requests()) - set(bench.undecided)
                if not left or self.chance(0.4):
                    bench.decide()
            self.step()
            bench.now += 1
            if self.arrived == ARRIVALS and not any(self.live):
                return
        raise AssertionError("no end in sight")

    arrived = 0

    @property
    def live(self) -> list[Request]:
        return [r for r in self.bench.requests if r.state is not State.FINISHED]

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def submit(self, room: int) -> None:
        """Some at once, most of which begin alike: they stand on what the first one computes."""
        draw, bench = self.draw, self.bench
        running, size = bench.limits.max_running, bench.block_size
        head = ids(draw.randint(1, max(1, room // 2)), draw.randrange(2))
        namespace = draw.choice(TENANTS)
        for _ in range(min(draw.randint(1, 4), ARRIVALS - self.arrived)):
            self.arrived += 1
            kept = draw.choice([len(head), len(head), draw.randint(0, len(head))])
            prompt = head[:kept] + ids(draw.randint(1, size), draw.randint(2, 4))
            most = room - len(prompt) + 1
            family = running > 1 and self.chance(0.2)
            bench.submit(
                prompt,
                draw.randint(1, min(most, max(1, room // 3))),
                frozenset(draw.sample(range(50), draw.choice([0, 0, 3]))),
                mode=draw.choice(MODES),
                namespace=draw.choice(TENANTS) if self.chance(0.2) else namespace,
                branches=draw.randint(1, min(2, running - 1)) if family else 0,
                priority=draw.randint(-1, 1),
                deadline=bench.now + draw.randint(0, 60) if self.chance(0.15) else None,
            )

    def abort(self, victims: Sequence[Request]) -> None:
        for victim in victims:
            self.bench.scheduler.abort(victim)

    def victims(self) -> list[Request]:
        """Some, most often of those whom others stand on."""
        found = [r for r in self.live if self.chance(0.15 if announces(r) else 0.01)]
        self.cut_short.update(found)
        return found

    def step(self) -> None:
        bench = self.bench
        if self.chance(0.01):
            bench.fail_launch()
            return
        bench.step(
            self.victims(),
            self.victims(),
            fly=self.chance(0.85),
            before=self.mishap(),
            this=self.mishap(),
            leave=[r for r in self.live if self.chance(0.1)],
        )

    def mishap(self) -> Mishap:
        if self.chance(0.01):
            return Mishap(fails=True)
        share = self.draw.choice([0.0, 0.0, 0.1])
        found = [r for r in self.live if self.chance(4 * share if announces(r) else 0.3 * share)]
        return Mishap(frozenset(found), rows=self.chance(0.5))


def announces(request: Request) -> bool:
    """Whether others may stand on what is being computed of it."""
    lease: Any = request.lease
    return bool(getattr(lease, "in_flight_tokens", 0) or getattr(lease, "announced", 0))


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    blocks=st.integers(4, 24),
    size=st.sampled_from([1, 4, 16]),
    running=st.integers(1, 6),
    kind=st.sampled_from(KINDS),
    order=st.sampled_from(sorted(ORDERS)),
    fair=st.booleans(),
)
def test_any_load_gets_the_answers_of_requests_computed_alone(
    seed: int, blocks: int, size: int, running: int, kind: str, order: str, fair: bool
) -> None:
    draw = random.Random(seed)
    bench = LookAheadBench(
        blocks,
        size,
        Limits(draw.randint(running, running + 4 * size), running, draw.randint(0, 4)),
        lambda num, of: make_cache(kind, num, of),
        order,
        fair,
    )
    load = Load(bench, draw)
    load.play()
    for request in bench.requests:
        alone = answer_alone_of(request)
        if request in load.cut_short | bench.failed or request in bench.ended:
            assert answer_of(request) == alone[: request.num_new_tokens]
        else:
            assert answer_of(request) == alone
    counters = bench.scheduler.counters
    assert counters.generated_tokens == sum(request.num_new_tokens for request in bench.requests)
    assert counters.requests_finished + counters.requests_aborted == len(bench.requests)
    bench.assert_idle()
