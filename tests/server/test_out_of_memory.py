"""What does not fit into memory in one step is computed in smaller ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from radix_engine.model.batch import Span
from server import Completion, Engine, GenerationParams
from server.choosing import Chosen
from server.collector import Collector
from tests.server.conftest import MakeEngine
from tests.server.prompts import GREEDY, greedy, ids

Tried = list[list[tuple[int, int]]]
"""By step or part of one: start and number of tokens of each span."""


def limited(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, most: int, error: type[Exception]
) -> Tried:
    """From now on memory runs out for more than ``most`` tokens at a time."""
    model = engine._loop._steps._model
    forward = model.forward
    tried: Tried = []

    def maybe(spans: list[Span]) -> torch.Tensor:
        tried.append([(span.start, len(span.tokens)) for span in spans])
        logits = forward(spans)  # so that something has been written, as on a GPU
        if sum(len(span.tokens) for span in spans) > most:
            raise error("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return logits

    monkeypatch.setattr(model, "forward", maybe)
    return tried


def together(
    engine: Engine, prompts: Sequence[list[int]], params: GenerationParams
) -> list[Completion]:
    """The answers to prompts that all wait when the first step is planned."""
    held, gate = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        gate.wait(timeout=20)

    engine._loop.post(hold)
    assert held.wait(timeout=20)
    collectors = [Collector(params.n) for _ in prompts]
    for prompt, collector in zip(prompts, collectors, strict=True):
        engine.submit(prompt, params, collector.push)
    gate.set()
    return [answer for collector in collectors for answer in collector.wait()]


def tokens_of(answers: Sequence[Completion]) -> list[tuple[int, ...]]:
    return [answer.token_ids for answer in answers]


FOUR = [ids(20, seed) for seed in (1, 2, 3, 4)]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_a_step_that_does_not_fit_is_computed_in_parts(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    expected = tokens_of(together(make_engine(), FOUR, greedy()))
    engine = make_engine()
    tried = limited(engine, monkeypatch, 25, error)
    answers = together(engine, FOUR, greedy())
    assert tokens_of(answers) == expected
    assert [len(spans) for spans in tried[:7]] == [4, 2, 1, 1, 2, 1, 1]
    assert {len(spans) for spans in tried[7:]} == {4}, "next tokens fit"
    assert {answer.finish_reason for answer in answers} == {"length"}


def test_whoever_reads_what_another_computes_in_the_same_step_comes_after_it(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [ids(48, 1) + ids(4, seed) for seed in (2, 3, 4)]
    expected = tokens_of(together(make_engine(), prompts, greedy()))
    engine = make_engine()
    tried = limited(engine, monkeypatch, 52, torch.OutOfMemoryError)
    answers = together(engine, prompts, greedy())
    assert tokens_of(answers) == expected
    assert tried[0] == [(0, 52), (48, 4), (48, 4)]
    assert tried[1:3] == [[(0, 52)], [(48, 4), (48, 4)]]
    assert [answer.usage.cached_tokens for answer in answers] == [0, 48, 48]


def test_a_request_that_does_not_fit_alone_ends_and_says_what_to_change(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [ids(20, 1), ids(60, 2), ids(20, 3)]
    expected = tokens_of(together(make_engine(), prompts, greedy()))
    engine = make_engine()
    limited(engine, monkeypatch, 50, torch.OutOfMemoryError)
    answers = together(engine, prompts, greedy())
    assert [answer.finish_reason for answer in answers] == ["length", "error", "length"]
    assert [answers[0].token_ids, answers[2].token_ids] == [expected[0], expected[2]]
    for words in ("memory ran out", "--max-step-tokens", "--gpu-memory-utilization"):
        assert words in (answers[1].error or "")
    assert engine.generate([ids(20, 5)], greedy(2))[0].finish_reason == "length"


def test_whoever_waited_for_what_does_not_fit_computes_it_itself(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [ids(48, 1) + ids(30, 2), ids(48, 1) + ids(4, 3)]
    expected = tokens_of(together(make_engine(), prompts, greedy()))
    engine = make_engine()
    tried = limited(engine, monkeypatch, 60, torch.OutOfMemoryError)
    owner, other = together(engine, prompts, greedy())
    assert tried[0] == [(0, 78), (48, 4)]
    assert [(0, 52)] in tried
    assert (owner.finish_reason, other.finish_reason) == ("error", "length")
    assert other.token_ids == expected[1]


@pytest.mark.parametrize(
    "params",
    [
        GenerationParams(6, GREEDY, n=3),
        GenerationParams(6, n=3, use_beam_search=True),
        GenerationParams(6, GREEDY, logprobs=2, prompt_logprobs=1),
    ],
    ids=["several answers", "beams", "log-probabilities"],
)
def test_all_that_an_answer_has_is_the_same_in_parts(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, params: GenerationParams
) -> None:
    prompts = FOUR[:2]
    expected = together(make_engine(), prompts, params)
    engine = make_engine()
    tried = limited(engine, monkeypatch, 20, torch.OutOfMemoryError)
    answers = together(engine, prompts, params)
    assert tried[:3] == [[(0, 20), (0, 20)], [(0, 20)], [(0, 20)]]
    assert tokens_of(answers) == tokens_of(expected)
    assert [each.logprobs for each in answers] == [each.logprobs for each in expected]
    assert [each.prompt_logprobs for each in answers] == [each.prompt_logprobs for each in expected]


def test_beams_of_one_search_may_be_in_different_parts(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = GenerationParams(6, n=3, use_beam_search=True)
    expected = make_engine().generate([ids(1, 1)], params)
    engine = make_engine()
    tried = limited(engine, monkeypatch, 1, torch.OutOfMemoryError)
    assert tokens_of(engine.generate([ids(1, 1)], params)) == tokens_of(expected)
    assert [len(spans) for spans in tried[1:6]] == [3, 1, 2, 1, 1]


def test_a_request_that_fails_otherwise_in_a_part_harms_nobody(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tokens_of(together(make_engine(), FOUR, greedy()))
    engine = make_engine()
    model = engine._loop._steps._model
    tried = limited(engine, monkeypatch, 45, torch.OutOfMemoryError)
    forward = model.forward

    def poisoned(spans: list[Span]) -> torch.Tensor:
        logits = forward(spans).clone()
        for row, span in enumerate(spans):
            if list(span.tokens) == FOUR[0]:
                logits[row, 7] = float("nan")
        return logits

    monkeypatch.setattr(model, "forward", poisoned)
    answers = together(engine, FOUR, greedy())
    assert [len(spans) for spans in tried[:3]] == [4, 2, 2]
    assert [answer.finish_reason for answer in answers] == ["error", *["length"] * 3]
    assert tokens_of(answers)[1:] == expected[1:]


def test_memory_may_run_out_while_tokens_are_chosen(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from server.choosing import choose

    params = GenerationParams(4, GREEDY, prompt_logprobs=0)
    expected = together(make_engine(), FOUR, params)
    engine = make_engine()

    def choose_few(rows: Sequence[Any], *rest: Any) -> Chosen:
        if len(rows) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return choose(rows, *rest)

    monkeypatch.setattr("server.steps.choose", choose_few)
    answers = together(engine, FOUR, params)
    assert tokens_of(answers) == tokens_of(expected)
    assert [each.prompt_logprobs for each in answers] == [each.prompt_logprobs for each in expected]


def test_torchs_unused_memory_is_given_back_before_each_further_try(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    engine = make_engine()
    tried = limited(engine, monkeypatch, 25, torch.OutOfMemoryError)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given_back.append(len(tried)))
    together(engine, FOUR, greedy())
    assert given_back == [1, 2, 5]  # after the whole step, its first half, its second half


def test_a_copy_that_fails_ends_its_step_and_not_the_engine(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    engine.generate([ids(60, 1)], greedy(2))

    def broken(_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(engine._loop._steps._model, "copy_rows", broken)
        answer = engine.generate([ids(60, 1)[:37] + ids(9, 2)], greedy(2))[0]
    assert answer.finish_reason == "error"
    assert "--max-step-tokens" in (answer.error or "")
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"
