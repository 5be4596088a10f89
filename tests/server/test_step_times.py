"""Where the time of steps goes, and since when the engine has not got on."""

from __future__ import annotations

import time

import pytest

from radix_engine.model.batch import Span
from server.step_times import COMPUTE, HAND_OUT, PARTS, PLAN, StepTimes
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("server.step_times.perf_counter", made)
    return made


def test_each_part_gets_the_time_since_the_one_before(clock: Clock) -> None:
    times = StepTimes()
    for plan_s, compute_s in ((1.0, 4.0), (2.0, 16.0)):
        clock.now += 1000  # idle
        times.begin()
        clock.now += plan_s
        times.lap(PLAN)
        clock.now += compute_s
        times.lap(COMPUTE)
        times.end_step()
        times.rest()
    assert (times.seconds[PLAN], times.seconds[COMPUTE], sum(times.seconds)) == (3.0, 20.0, 23.0)
    assert (times.steps, times.longest_s) == (2, 18.0)


def test_stalled_is_the_time_since_a_step_ended_or_work_came(clock: Clock) -> None:
    times = StepTimes()
    assert times.stalled_s() == 0.0
    times.begin()
    clock.now += 3
    times.lap(PLAN)
    clock.now += 4
    assert times.stalled_s() == 7.0, "a part of a step is no step"
    times.lap(HAND_OUT)
    times.end_step()
    times.begin()
    clock.now += 2
    assert times.stalled_s() == 2.0
    times.rest()
    clock.now += 50
    assert times.stalled_s() == 0.0


def test_an_engine_times_all_parts_of_its_steps(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    forward = engine._loop._steps._model.forward

    def slow_forward(spans: list[Span]) -> object:
        time.sleep(0.02)
        return forward(spans)

    monkeypatch.setattr(engine._loop._steps._model, "forward", slow_forward)
    began = time.perf_counter()
    engine.generate([ids(40, 1)], greedy(5))
    engine.generate([[*ids(20, 1), 3]], greedy(5))  # parts inside a stored block: a copy
    engine.audit()  # whatever the steps do after the last answer is done by then
    took = time.perf_counter() - began
    readings = engine.readings()
    seconds = readings.step_seconds
    assert list(seconds) == list(PARTS)
    always = ("commands", "plan", "copy", "compute", "sample", "commit", "hand_out")
    assert all(seconds[part] > 0 for part in always)
    assert readings.timed_steps == readings.counters["steps"] == 10
    assert 10 * 0.02 <= seconds["compute"] < sum(seconds.values()) < took
    assert 0.02 <= readings.longest_step_s < took


def test_a_step_that_fails_is_timed_too(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    def broken(spans: list[Span]) -> object:
        raise ArithmeticError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(engine._loop._steps._model, "forward", broken)
        engine.generate([ids(20, 1)], greedy(5))
    engine.audit()
    assert engine.readings().timed_steps == 1
    assert engine.stalled_s() < 1
