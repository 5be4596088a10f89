"""A full queue is told at once, whatever the engine is doing."""

from __future__ import annotations

import threading

import pytest

from scheduler import Limits
from server import Engine, RequestRefused
from server.collector import Collector
from server.generation_params import GenerationParams
from tests.server.conftest import MakeEngine

ENDS = {"length", "stop"}  # the tiny model's own sampling is random


def held(engine: Engine) -> threading.Event:
    """Keep the engine's thread busy, as a long step does, until the event is set."""
    entered, go_on = threading.Event(), threading.Event()

    def step_that_takes_long() -> None:
        entered.set()
        go_on.wait(30)

    assert engine._loop.post(step_that_takes_long)
    assert entered.wait(30)
    return go_on


def test_beyond_the_places_to_run_and_to_wait_a_request_is_refused_while_a_step_runs(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(limits=Limits(max_running=1, max_waiting=2))
    params = GenerationParams(max_tokens=2)
    collectors = [Collector(1) for _ in range(4)]
    go_on = held(engine)
    try:
        for collector in collectors[:3]:  # one that will run, and two that wait for it
            engine.submit([5, 6, 7], params, collector.push)
        with pytest.raises(RequestRefused) as refused:
            engine.submit([5, 6, 7], params, collectors[3].push)
    finally:
        go_on.set()
    assert (refused.value.status, refused.value.code) == (429, "queue_full")
    assert "limit 2" in refused.value.message
    assert "--max-waiting" in refused.value.message
    for collector in collectors[:3]:
        assert [answer.finish_reason in ENDS for answer in collector.wait()] == [True]
    engine.submit([5, 6, 7], params, collectors[3].push)
    assert [answer.finish_reason in ENDS for answer in collectors[3].wait()] == [True]


def test_of_many_that_come_at_once_each_is_answered_or_refused_at_the_door(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(limits=Limits(max_running=1, max_waiting=1))
    answers: list[str] = []
    refusals: list[str] = []

    def ask(seed: int) -> None:
        collector = Collector(1)
        try:
            engine.submit([seed, 6, 7], GenerationParams(max_tokens=2), collector.push)
        except RequestRefused as refusal:
            refusals.append(refusal.code)
        else:
            answers.append(collector.wait()[0].finish_reason)

    for burst in range(5):
        threads = [threading.Thread(target=ask, args=(5 + burst * 8 + n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(answers) + len(refusals) == 40
    assert set(answers) <= ENDS
    assert len(answers) >= 5
    assert set(refusals) <= {"queue_full"}
