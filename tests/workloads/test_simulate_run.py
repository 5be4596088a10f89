from __future__ import annotations

from array import array
from itertools import pairwise
from typing import Any

import pytest

from scheduler import Limits, Scheduler, StepPlan
from workloads.simulation import run as sim_run
from workloads.simulation.cost import CostModel
from workloads.simulation.load import Load, LoadRequest, made_up_tokens
from workloads.simulation.run import Outcome, Run, Setup, simulate
from workloads.simulation.shared_heads import Sizes, zipf_load

ORDERS = ("lpm", "dfs", "hrrn", "fcfs", "priority")
COST = CostModel(fixed=0.02, per_token=0.001, per_pair=1e-6, per_sequence=0.001)
TIGHT = Setup(COST, Limits(max_step_tokens=64, max_running=8), num_blocks=40)


def busy(seed: int = 0) -> Load:
    """80 requests that come faster than they are served, to a pool that holds few heads."""
    return zipf_load(80, 8, 1.0, Sizes(head=96, own=20, reply=9), seed).at_rate(20.0)


def request(name: str, prompt: int, reply: int, delay_s: float) -> LoadRequest:
    return LoadRequest(
        made_up_tokens(0, f"prompt {name}", prompt), made_up_tokens(0, name, reply), delay_s
    )


def timeless(run: Run) -> tuple[Any, ...]:
    return run.outcomes, run.counters, run.makespan_s


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("index", ["tree", "hash"])
def test_every_request_ends_and_the_tokens_add_up(order: str, index: str) -> None:
    setup = Setup(COST, TIGHT.limits, TIGHT.num_blocks, index)
    run = simulate(busy(), order, setup)
    counters = run.counters
    assert len(run.outcomes) == counters.requests_finished == 80
    assert {outcome.end for outcome in run.outcomes} == {"length"}
    assert {outcome.new_tokens for outcome in run.outcomes} == {9}
    assert counters.generated_tokens == 80 * 9
    assert counters.prompt_tokens == 80 * 116
    computed = counters.computed_tokens + counters.cached_late_tokens
    assert counters.cached_tokens + computed == counters.prompt_tokens
    assert sum(outcome.cached_tokens for outcome in run.outcomes) == counters.cached_tokens > 0


@pytest.mark.parametrize("order", ORDERS)
def test_the_moments_of_a_request_follow_one_another(order: str) -> None:
    run = simulate(busy(), order, TIGHT)
    for outcome in run.outcomes:
        moments = (
            outcome.arrived_s,
            outcome.admitted_s,
            outcome.first_token_s,
            outcome.ended_s,
        )
        assert None not in moments
        assert list(moments) == sorted(moment for moment in moments if moment is not None)
    assert [o.arrived_s for o in run.outcomes] == sorted(o.arrived_s for o in run.outcomes)
    assert max(outcome.ended_s or 0.0 for outcome in run.outcomes) == run.makespan_s


@pytest.mark.parametrize("order", ORDERS)
def test_a_simulation_is_decided_by_its_seed(order: str) -> None:
    first, again = simulate(busy(3), order, TIGHT), simulate(busy(3), order, TIGHT)
    assert timeless(first) == timeless(again)
    assert timeless(first) != timeless(simulate(busy(4), order, TIGHT))


def test_the_clock_that_the_scheduler_sees_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    class Watched(Scheduler):
        def plan(self, now: float = 0.0) -> StepPlan:
            seen.append(now)
            return super().plan(now)

    monkeypatch.setattr(sim_run, "Scheduler", Watched)
    run = simulate(busy(), "lpm", TIGHT)
    assert len(seen) == run.counters.steps
    assert all(before < after for before, after in pairwise(seen))
    assert seen[-1] < run.makespan_s


def test_first_come_first_served_by_hand() -> None:
    # One at a time; a step takes 1 s and 0.5 s a token.
    setup = Setup(CostModel(1.0, 0.5, 0.0, 0.0), Limits(16, 1), num_blocks=8)
    load = Load(
        ((request("a", 4, 2, 0.0),), (request("b", 2, 2, 0.5),), (request("c", 6, 2, 0.25),))
    )
    run = simulate(load, "fcfs", setup)
    # a: 4 tokens until 3.0, one more until 4.5. c: 6 until 8.5, 10.0. b: 2 until 12.0, 13.5.
    assert list(run.outcomes) == [
        Outcome(0, 0, 4, 0.0, 0.0, 3.0, 4.5, 0, 2, "length"),
        Outcome(2, 0, 6, 0.25, 4.5, 8.5, 10.0, 0, 2, "length"),
        Outcome(1, 0, 2, 0.5, 10.0, 12.0, 13.5, 0, 2, "length"),
    ]
    assert run.outcomes[2].wait_s == 9.5
    assert run.outcomes[2].ttft_s == 11.5
    assert run.makespan_s == 13.5
    assert run.counters.steps == 6


def test_the_longest_cached_goes_first_where_that_is_the_order() -> None:
    setup = Setup(CostModel(1.0, 0.5, 0.0, 0.0), Limits(64, 1), num_blocks=12)
    head = made_up_tokens(0, "head", 32)
    own = {name: made_up_tokens(0, name, 2) for name in "abc"}
    load = Load(
        (
            (LoadRequest(head + own["a"], own["a"][:1], 0.0),),
            (LoadRequest(made_up_tokens(0, "other", 32) + own["b"], own["b"][:1], 1.0),),
            (LoadRequest(head + own["c"], own["c"][:1], 2.0),),
        )
    )
    # a computes 34 tokens until 18.0. c finds 32 of its 34: 2 s. b: 18 s.
    ends = {o.session: o.ended_s for o in simulate(load, "lpm", setup).outcomes}
    assert ends == {0: 18.0, 2: 20.0, 1: 38.0}
    ends = {o.session: o.ended_s for o in simulate(load, "fcfs", setup).outcomes}
    assert ends == {0: 18.0, 1: 36.0, 2: 38.0}


def test_time_passes_to_the_next_arrival_when_nothing_is_to_do() -> None:
    setup = Setup(CostModel(1.0, 0.0, 0.0, 0.0), Limits(16, 4), num_blocks=8)
    load = Load(((request("a", 4, 1, 5.0),), (request("b", 4, 1, 20.0),)))
    run = simulate(load, "lpm", setup)
    assert [(o.admitted_s, o.ended_s) for o in run.outcomes] == [(5.0, 6.0), (20.0, 21.0)]


def test_a_sessions_next_turn_comes_a_thinking_time_after_the_reply_and_finds_it_cached() -> None:
    setup = Setup(CostModel(1.0, 0.0, 0.0, 0.0), Limits(64, 4), num_blocks=8)
    first = request("first", 20, 13, 2.0)
    history = first.prompt + first.reply
    second = LoadRequest(history + array("i", [1, 2, 3]), array("i", [9]), 10.0)
    run = simulate(Load(((first, second),)), "lpm", setup)
    # 13 steps from 2.0 on; all but the reply's last token are in memory: 32, two whole blocks.
    assert run.outcomes[0].ended_s == 15.0
    assert run.outcomes[1].arrived_s == 25.0
    assert run.outcomes[1].turn == 1
    assert run.outcomes[1].cached_tokens == 32


def test_progress_is_told_of_every_end() -> None:
    ended: list[int] = []
    simulate(busy(), "lpm", TIGHT, ended.append)
    assert sum(ended) == 80


def test_a_plan_that_goes_nowhere_is_not_repeated_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(Scheduler):
        def plan(self, now: float = 0.0) -> StepPlan:
            return StepPlan(())

    monkeypatch.setattr(sim_run, "Scheduler", Stuck)
    with pytest.raises(RuntimeError, match="no request can make progress"):
        simulate(busy(), "lpm", TIGHT)


def test_a_request_that_ends_without_being_computed_is_counted_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Impatient(Scheduler):
        """Gives every request half a second."""

        def submit(self, request: Any, now: float = 0.0) -> None:
            request.deadline = now + 0.5
            super().submit(request, now)

    monkeypatch.setattr(sim_run, "Scheduler", Impatient)
    setup = Setup(CostModel(1.0, 0.0, 0.0, 0.0), Limits(16, 1), num_blocks=8)
    load = Load(
        ((request("a", 4, 1, 0.0),), (request("b", 4, 1, 0.1),), (request("c", 4, 1, 2.0),))
    )
    run = simulate(load, "fcfs", setup)
    assert [outcome.end for outcome in run.outcomes] == ["length", "deadline", "length"]
    late = run.outcomes[1]
    assert (late.admitted_s, late.first_token_s, late.new_tokens) == (None, None, 0)
    assert late.ttft_s is None
    assert late.wait_s is None
    assert run.outcomes[2].ended_s == 3.0
