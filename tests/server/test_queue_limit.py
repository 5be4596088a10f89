"""A full queue is told at once, whatever the engine is doing."""

from __future__ import annotations

import threading

import pytest

from scheduler import Limits
from server import RequestRefused
from server.collector import Collector
from server.outputs import GenerationParams
from tests.server.conftest import MakeEngine


def test_a_request_beyond_the_limit_is_refused_while_a_step_runs(make_engine: MakeEngine) -> None:
    engine = make_engine(limits=Limits(max_running=1, max_waiting=2))
    entered, go_on = threading.Event(), threading.Event()

    def step_that_takes_long() -> None:
        entered.set()
        go_on.wait(30)

    params = GenerationParams(max_tokens=2)
    collectors = [Collector(1) for _ in range(3)]
    try:
        assert engine._loop.post(step_that_takes_long)
        assert entered.wait(30)
        for collector in collectors[:2]:
            engine.submit([5, 6, 7], params, collector.push)
        with pytest.raises(RequestRefused) as refused:
            engine.submit([5, 6, 7], params, collectors[2].push)
    finally:
        go_on.set()
    assert (refused.value.status, refused.value.code) == (429, "queue_full")
    assert "limit is 2" in refused.value.message
    assert "--max-waiting" in refused.value.message
    for collector in collectors[:2]:
        assert [len(answer.token_ids) for answer in collector.wait()] == [2]
    engine.submit([5, 6, 7], params, collectors[2].push)
    assert [len(answer.token_ids) for answer in collectors[2].wait()] == [2]
