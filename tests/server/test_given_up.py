"""Answers whose requests the scheduler ends: for want of memory, or because their time is over."""

from __future__ import annotations

import dataclasses
import queue
from types import SimpleNamespace

import pytest
import torch

from radix_engine.model.batch import Span
from scheduler import Ended, StepPlan
from server import Engine, GenerationParams, Output
from server.intake import Intake
from tests.server.conftest import MakeEngine
from tests.server.prompts import GREEDY, greedy, ids

LATE_S = 100.0


def with_deadline(engine: Engine, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request's time is over after so many steps of the engine."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("server.steps.time", SimpleNamespace(monotonic=lambda: clock.now))
    prepare = Intake.prepare

    def prepare_with_deadline(self: Intake, *arguments: object) -> object:
        work = prepare(self, *arguments)  # type: ignore[arg-type]
        requests = [each.request for each in work] if isinstance(work, list) else work.requests
        for request in requests:
            request.deadline = LATE_S
        return work

    monkeypatch.setattr(Intake, "prepare", prepare_with_deadline)
    model = engine._loop._steps._model
    forward = model.forward
    if not steps:
        clock.now = LATE_S

    def counting(spans: list[Span]) -> torch.Tensor:
        if engine.counters()["steps"] + 1 >= steps:
            clock.now = LATE_S
        return forward(spans)

    monkeypatch.setattr(model, "forward", counting)


def test_when_its_time_is_over_an_answer_ends_as_long_as_it_is(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    whole = engine.generate([ids(20, 1)], greedy(30))[0]
    engine = make_engine()
    with_deadline(engine, 5, monkeypatch)
    answers = engine.generate([ids(20, 1)], GenerationParams(30, GREEDY, n=3))
    assert [answer.finish_reason for answer in answers] == ["length"] * 3
    assert [answer.token_ids for answer in answers] == [whole.token_ids[:5]] * 3
    assert engine.counters()["requests_aborted"] == 3


@pytest.mark.parametrize("n", [1, 3])
def test_without_a_token_in_time_there_is_an_error_and_no_empty_answer(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    engine = make_engine()
    with_deadline(engine, 0, monkeypatch)
    answers = engine.generate([ids(20, 1)], GenerationParams(30, GREEDY, n=n))
    assert {answer.finish_reason for answer in answers} == {"error"}
    assert all("deadline" in (answer.error or "") for answer in answers)
    assert engine.counters()["steps"] == 0


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_beam_search_that_is_not_over_in_time_has_no_answers(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    engine = make_engine()
    with_deadline(engine, steps, monkeypatch)
    answers = engine.generate([ids(20, 1)], GenerationParams(30, n=3, use_beam_search=True))
    assert {answer.finish_reason for answer in answers} == {"error"}
    assert all("deadline" in (answer.error or "") for answer in answers)
    assert engine.counters()["steps"] == steps
    assert engine.audit() == []


def test_a_search_ends_when_one_of_its_beams_does_and_the_step_computes_only_what_is_left(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    expected = engine.generate([ids(20, 2)], greedy(200))[0]
    scheduler = engine._scheduler
    plan = scheduler.plan

    def give_up(now: float) -> StepPlan:
        made = plan(now)
        if len(made.spans) < 3:
            return made
        request = made.spans[-1].request
        scheduler.abort(request)
        return dataclasses.replace(made.still_running, ended=(Ended(request, "memory"),))

    monkeypatch.setattr(scheduler, "plan", give_up)
    ends: queue.SimpleQueue[Output] = queue.SimpleQueue()
    other = engine.stream(ids(20, 2), greedy(200))
    tokens = [*next(other).token_ids]
    engine.submit(ids(20, 1), GenerationParams(60, n=3, use_beam_search=True), ends.put)
    for piece in other:
        tokens.extend(piece.token_ids)
    assert tuple(tokens) == expected.token_ids
    answers = [ends.get(timeout=20) for _ in range(3)]
    assert {answer.finish_reason for answer in answers} == {"error"}
    assert all("--kv-memory" in (answer.error or "") for answer in answers)
    assert engine.audit() == []


def test_an_answer_that_outgrows_the_memory_ends_with_an_error_that_says_what_to_do(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(num_blocks=8)
    scheduler = engine._scheduler
    plan = scheduler.plan

    def give_up(now: float) -> StepPlan:
        requests = [each for each in scheduler.requests() if each.num_new_tokens == 3]
        for request in requests:
            scheduler.abort(request)
        made = plan(now)
        ended = tuple(Ended(request, "memory") for request in requests)
        return dataclasses.replace(made, ended=(*made.ended, *ended))

    monkeypatch.setattr(scheduler, "plan", give_up)
    (answer,) = engine.generate([ids(20, 1)], greedy(30))
    assert answer.finish_reason == "error"
    assert answer.error is not None
    assert "128 tokens" in answer.error
    assert "--kv-memory" in answer.error
    assert len(answer.token_ids) == 3
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"
