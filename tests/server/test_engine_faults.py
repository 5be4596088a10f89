"""What the engine does when something fails, and how it ends."""

from __future__ import annotations

import queue
import threading

import pytest
import torch

from radix_engine.model.batch import Span
from server import GenerationParams, Output, RequestRefused, SamplingParams
from server.detokenizer import Detokenizer
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids


def test_a_failing_step_ends_its_requests_and_the_engine_goes_on(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    def broken(_: object) -> None:
        raise ArithmeticError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(engine._loop._steps._model, "forward", broken)
        answer = engine.generate([ids(20, 1)], greedy())[0]
    assert (answer.finish_reason, answer.error) == ("error", "ArithmeticError: boom")
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


@pytest.mark.parametrize("part", ["plan", "commit", "submit"])
def test_a_fault_in_the_scheduler_ends_requests_and_not_the_engine(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    engine = make_engine()

    def broken(*_: object) -> None:
        raise ArithmeticError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(engine._scheduler, part, broken)
        answers = engine.generate([ids(20, 1), ids(20, 2)], greedy())
    assert {answer.finish_reason for answer in answers} == {"error"}
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_a_fault_in_one_requests_text_ends_that_one(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    class Broken(Detokenizer):
        def push(self, token: int) -> str:
            raise ArithmeticError("boom")

    with monkeypatch.context() as patch:
        patch.setattr("server.tokens.Detokenizer", Broken)
        answer = engine.generate(["hello"], greedy())[0]
    assert (answer.finish_reason, answer.error) == ("error", "ArithmeticError: boom")
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_a_receiver_that_raises_harms_nobody(make_engine: MakeEngine) -> None:
    engine = make_engine()
    ended = threading.Event()

    def broken(output: Output) -> None:
        if output.finish_reason is not None:
            ended.set()
        raise RuntimeError("receiver")

    engine.submit(ids(20, 1), greedy(900), broken)
    assert ended.wait(timeout=20)
    assert engine.counters()["generated_tokens"] == 1, "nobody wants the rest"
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_shutdown_lets_running_answers_end_and_refuses_new_ones(make_engine: MakeEngine) -> None:
    engine = make_engine()
    outputs: list[Output] = []
    engine.submit(ids(20, 1), greedy(10), outputs.append)
    engine.shutdown(grace_s=20.0)
    assert outputs[-1].finish_reason == "length"
    assert not engine.is_alive()
    with pytest.raises(RequestRefused, match="shutting down"):
        engine.submit(ids(20, 1), greedy(), outputs.append)


def test_shutdown_ends_what_does_not_end_in_time(make_engine: MakeEngine) -> None:
    engine = make_engine()
    outputs: list[Output] = []
    for seed in range(3):
        engine.submit(ids(20, seed), greedy(900), outputs.append)
    engine.shutdown(grace_s=0.0)
    assert sorted(o.finish_reason for o in outputs if o.finish_reason) == ["abort"] * 3


def test_logits_that_are_no_numbers_end_only_their_own_request(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    expected = engine.generate([ids(20, 2)], greedy(4))[0].token_ids
    forward = engine._loop._steps._model.forward

    def poisoned(spans: list[Span]) -> torch.Tensor:
        logits = forward(spans).clone()
        wanting = [span for span in spans if span.num_logits]
        for row, span in enumerate(wanting):
            if span.start < 30 <= span.start + len(span.tokens):
                logits[row, 7] = float("nan")
        return logits

    monkeypatch.setattr(engine._loop._steps._model, "forward", poisoned)
    params = GenerationParams(4, SamplingParams(temperature=1.0, top_p=0.9, seed=1))
    bad, good = engine.generate([ids(30, 1)], params)[0], engine.generate([ids(20, 2)], greedy(4))
    assert (bad.finish_reason, good[0].token_ids) == ("error", expected)
    together = engine.generate([ids(30, 1), ids(20, 2)], greedy(4))
    assert [answer.finish_reason for answer in together] == ["error", "length"]
    assert together[1].token_ids == expected


def test_a_request_whose_text_cannot_be_ended_does_not_end_the_engine(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    class Broken(Detokenizer):
        def flush(self) -> str:
            raise ArithmeticError("boom")

    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    with monkeypatch.context() as patch:
        patch.setattr("server.tokens.Detokenizer", Broken)
        request_id = engine.submit(ids(20, 1), greedy(900), outputs.put)
    outputs.get(timeout=20)
    engine.abort(request_id)
    while (last := outputs.get(timeout=20)).finish_reason is None:
        pass
    assert last.finish_reason == "error"
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_when_the_thread_itself_fails_everybody_is_told(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Panic(BaseException):
        pass

    both_submitted = threading.Event()

    def panic(_: object) -> None:
        assert both_submitted.wait(timeout=20)
        raise Panic("native code")

    engine = make_engine()
    monkeypatch.setattr(engine._loop._steps._model, "forward", panic)
    outputs: list[Output] = []
    for seed in (1, 2):
        engine.submit(ids(20, seed), greedy(4), outputs.append)
    both_submitted.set()
    engine._loop._thread.join(timeout=20)
    assert [output.finish_reason for output in outputs] == ["error", "error"]
    assert not engine.is_alive()
    with pytest.raises(RequestRefused, match="the engine has failed"):
        engine.submit(ids(20, 1), greedy(), lambda _: None)
    with pytest.raises(RuntimeError, match="has ended"):
        engine.flush_cache()


def test_a_receiver_may_ask_the_engine_but_not_shut_it_down(make_engine: MakeEngine) -> None:
    engine = make_engine()
    seen: list[object] = []
    ended = threading.Event()

    def receiver(output: Output) -> None:
        if output.finish_reason is not None:
            seen.append(engine.audit())
            try:
                engine.shutdown(0.0)
            except RuntimeError as error:
                seen.append(str(error))
            ended.set()

    engine.submit(ids(20, 1), greedy(3), receiver)
    assert ended.wait(timeout=20)
    assert seen == [[], "the engine cannot be shut down from its own thread"]


def test_a_second_shutdown_does_not_leave_the_first_waiting(make_engine: MakeEngine) -> None:
    engine = make_engine()
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    engine.submit(ids(20, 1), greedy(900), outputs.put)
    outputs.get(timeout=20)
    first = threading.Thread(target=engine.shutdown, args=(float("inf"),))
    first.start()
    engine.shutdown(0.0)
    first.join(timeout=20)
    assert not first.is_alive()
