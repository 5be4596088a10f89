"""What does not fit into memory in one step is computed in smaller ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from radix_engine.model.batch import Span
from scheduler import Request, ScheduledSpan, StepPlan
from scheduler.request import State
from server import Completion, Engine, GenerationParams
from server.choosing import Chosen
from server.collector import Collector
from server.out_of_memory import compute, copy_rows, halves, is_out_of_memory
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


# The parts


def span(number: int, count: int, samples: bool = False) -> ScheduledSpan:
    return ScheduledSpan(Request(number, [1] * count, 1), 0, count, samples)


@pytest.mark.parametrize(
    ("counts", "first"),
    [
        ([1, 1], 1),
        ([5, 5, 5, 5], 2),
        ([1900, 1, 1, 1], 1),
        ([1, 1, 1, 1900], 3),
        ([3, 1, 1, 1], 1),
        ([1, 2, 4, 8, 1], 3),
    ],
)
def test_halves_have_about_as_many_tokens(counts: list[int], first: int) -> None:
    spans = [span(number, count) for number, count in enumerate(counts)]
    left, right = halves(spans)
    assert (list(left), list(right)) == (spans[:first], spans[first:])


def test_a_search_with_beams_in_several_parts_is_told_once() -> None:
    search: Any = object()

    def once(plan: StepPlan) -> tuple[StepPlan, Chosen]:
        if len(plan.spans) > 1:
            raise MemoryError
        return plan, Chosen([None], searches=[search])

    spans = (span(1, 1, samples=True), span(2, 1, samples=True))
    for each in spans:
        each.request.state = State.RUNNING
    plan, chosen = compute(StepPlan(spans), once, lambda *_: None)
    assert (plan.spans, chosen.tokens, chosen.searches) == (spans, [None, None], [search])


def test_other_errors_are_passed_on() -> None:
    def broken(_: StepPlan) -> tuple[StepPlan, Chosen]:
        raise RuntimeError("an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal"):
        compute(StepPlan((span(1, 1), span(2, 1))), broken, lambda *_: None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_means_that_memory_ran_out(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


# Copies


class Rows:
    """Blocks of one row each; memory runs out for more than ``most`` copies at a time."""

    def __init__(self, most: int) -> None:
        self.blocks = {block: str(block) for block in range(6)}
        self.most = most

    def copy(self, copies: Sequence[tuple[int, int, int]]) -> None:
        for number, (source, target, _) in enumerate(copies):
            if number == self.most:
                raise torch.OutOfMemoryError("CUDA out of memory")
            self.blocks[target] = self.blocks[source]


def test_copies_that_do_not_fit_together_are_made_one_by_one() -> None:
    rows = Rows(most=1)
    copy_rows(rows.copy, [(0, 3, 5), (1, 4, 5), (4, 5, 5)])
    assert rows.blocks == {0: "0", 1: "1", 2: "2", 3: "0", 4: "1", 5: "1"}


def test_copies_that_cannot_be_begun_again_are_not() -> None:
    rows = Rows(most=2)
    chain = [(0, 3, 5), (1, 0, 5), (2, 5, 5)]  # block 0 is overwritten once it has been copied
    with pytest.raises(MemoryError, match="--max-step-tokens"):
        copy_rows(rows.copy, chain)
    assert rows.blocks[3] == "0"
    whole = Rows(most=3)
    copy_rows(whole.copy, chain)
    assert (whole.blocks[3], whole.blocks[0], whole.blocks[5]) == ("0", "1", "2")


def test_a_copy_that_does_not_fit_alone_is_told() -> None:
    with pytest.raises(MemoryError, match="--gpu-memory-utilization"):
        copy_rows(Rows(most=0).copy, [(0, 3, 5)])


def test_another_error_of_a_copy_is_passed_on() -> None:
    def broken(_: object) -> None:
        raise ValueError("blocks 1 and 9 must both lie below 6")

    with pytest.raises(ValueError, match="must both lie below"):
        copy_rows(broken, [(1, 9, 1)])


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
