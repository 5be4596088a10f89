"""Several answers to one prompt, which is computed once."""

from __future__ import annotations

import queue
from typing import Any

import pytest
import torch

from radix_engine.model.batch import Span
from radix_engine.model.sampling import seed_of_answer
from scheduler import Limits
from server import Completion, Engine, GenerationParams, Output, RequestRefused, SamplingParams
from server.detokenizer import Detokenizer
from tests.server.conftest import MakeEngine
from tests.server.prompts import GREEDY, greedy, ids

SEED = 11


def sampled(n: int, max_tokens: int = 12, **fields: Any) -> GenerationParams:
    return GenerationParams(max_tokens, SamplingParams(temperature=1.0, seed=SEED), n=n, **fields)


def lone(engine: Engine, prompt: list[int], index: int, max_tokens: int = 12) -> Completion:
    """The answer of a request for one, with the random numbers of answer ``index``."""
    sampling = SamplingParams(temperature=1.0, seed=seed_of_answer(SEED, index))
    return engine.generate([prompt], GenerationParams(max_tokens, sampling))[0]


@pytest.mark.parametrize("length", [1, 16, 33, 100])
def test_each_answer_is_that_of_a_lone_request_with_its_random_numbers(
    make_engine: MakeEngine, length: int
) -> None:
    engine, other = make_engine(), make_engine()
    prompt = ids(length, 3)
    answers = engine.generate([prompt], sampled(4))
    assert [answer.index for answer in answers] == [0, 1, 2, 3]
    assert len({answer.token_ids for answer in answers}) == 4
    for index, answer in enumerate(answers):
        expected = lone(other, prompt, index)
        assert (answer.token_ids, answer.text) == (expected.token_ids, expected.text)
        assert answer.usage.prompt_tokens == length
        assert answer.usage.completion_tokens == len(answer.token_ids)


def test_answers_do_not_depend_on_how_many_there_are(make_engine: MakeEngine) -> None:
    engine = make_engine()
    few = [answer.token_ids for answer in engine.generate([ids(20, 1)], sampled(2))]
    many = [answer.token_ids for answer in engine.generate([ids(20, 1)], sampled(5))]
    assert many[:2] == few


def test_the_prompt_is_computed_once_and_counted_once(make_engine: MakeEngine) -> None:
    engine = make_engine()
    answers = engine.generate([ids(100, 1)], sampled(4))
    counters = engine.counters()
    assert (counters["prompt_tokens"], counters["computed_tokens"]) == (100, 100)
    assert counters["recomputed_tokens"] == 0
    assert counters["generated_tokens"] == sum(len(answer.token_ids) for answer in answers)
    assert counters["requests_finished"] == 4
    again = engine.generate([ids(100, 1)], sampled(4))
    assert [answer.usage.cached_tokens for answer in again] == [96] * 4
    assert {answer.usage.match_end for answer in again} == {again[0].usage.match_end}


def test_greedy_answers_are_equal(make_engine: MakeEngine) -> None:
    engine = make_engine()
    (alone,) = engine.generate([ids(40, 1)], greedy(10))
    several = engine.generate([ids(40, 1)], GenerationParams(10, GREEDY, n=3))
    assert [answer.token_ids for answer in several] == [alone.token_ids] * 3


def test_several_prompts_have_their_answers_one_after_the_other(make_engine: MakeEngine) -> None:
    engine, other = make_engine(), make_engine()
    prompts = [ids(20, 1), ids(33, 2)]
    answers = engine.generate(prompts, sampled(3))
    assert [answer.index for answer in answers] == [0, 1, 2, 0, 1, 2]
    assert [answer.token_ids for answer in answers] == [
        lone(other, prompt, index).token_ids for prompt in prompts for index in range(3)
    ]


class Watched:
    """Looks at the engine's blocks in each call of its model's forward pass."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tables: list[list[list[int]]] = []  # by step
        self.private: list[int] = []
        model = engine._loop._steps._model
        forward = model.forward

        def watch(spans: list[Span]) -> torch.Tensor:
            self.tables.append([list(span.block_table) for span in spans])
            self.private.append(engine.state()["blocks_private"])
            return forward(spans)

        monkeypatch.setattr(model, "forward", watch)


def test_answers_share_all_full_blocks_and_have_one_of_their_own_each(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    watched = Watched(engine, monkeypatch)
    engine.generate([ids(40, 1)], sampled(4, 8))
    prompt_step, *others = watched.tables
    assert len(prompt_step) == 1
    for tables in others:
        assert len(tables) == 4
        heads = {tuple(table[:2]) for table in tables}
        tails = [table[2] for table in tables]
        assert heads == {tuple(prompt_step[0][:2])}
        assert len(set(tails)) == 4
        assert {len(table) for table in tables} == {3}
    assert watched.private[1:] == [4] * len(others)


def test_a_stream_has_all_answers_each_in_order(make_engine: MakeEngine) -> None:
    engine, other = make_engine(), make_engine()
    pieces = list(engine.stream(ids(20, 1), sampled(3)))
    assert len({piece.request_id for piece in pieces}) == 1
    for index in range(3):
        own = [piece for piece in pieces if piece.index == index]
        expected = lone(other, ids(20, 1), index)
        assert tuple(token for piece in own for token in piece.token_ids) == expected.token_ids
        assert "".join(piece.text for piece in own) == expected.text
        assert [piece.finish_reason for piece in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1].finish_reason == expected.finish_reason


def test_leaving_a_stream_early_ends_all_answers(make_engine: MakeEngine) -> None:
    engine = make_engine()
    stream = engine.stream(ids(10, 1), sampled(3, 900))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert engine.audit() == []
    assert engine.state()["running"] == 0
    assert engine.counters()["requests_aborted"] == 3


def test_one_that_ends_early_leaves_the_others_right(make_engine: MakeEngine) -> None:
    engine, other = make_engine(), make_engine()
    whole = [lone(other, ids(20, 1), index, 40) for index in range(3)]
    text = whole[1].text
    stop = next(
        text[at : at + 2]
        for at in range(4, len(text))
        if all(text[at : at + 2] not in each.text for each in (whole[0], whole[2]))
    )
    answers = engine.generate([ids(20, 1)], sampled(3, 40, stop=(stop,)))
    assert [answer.text for answer in answers] == [
        whole[0].text,
        text[: text.index(stop)],
        whole[2].text,
    ]
    assert [answer.finish_reason for answer in answers] == ["length", "stop", "length"]


def test_an_aborted_request_ends_all_its_answers_whether_they_have_begun_or_not(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(num_blocks=8)
    blocker = engine.stream(ids(90, 9), greedy(20))
    next(blocker)
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    waits = engine.submit(ids(60, 1), sampled(3, 60), outputs.put)
    engine.abort(waits)
    ends = [outputs.get(timeout=20) for _ in range(3)]
    assert {(each.request_id, each.finish_reason) for each in ends} == {(waits, "abort")}
    assert {each.index for each in ends} == {0, 1, 2}
    assert list(blocker)[-1].finish_reason == "length"
    assert outputs.empty()
    assert engine.state()["waiting"] == 0


@pytest.mark.parametrize("options", [{}, {"index": "hash"}, {"prefix_cache": False}], ids=str)
def test_memory_too_small_for_all_answers_at_a_time_changes_none(
    make_engine: MakeEngine, options: dict[str, Any]
) -> None:
    roomy = make_engine()
    tight = make_engine(6, limits=Limits(max_step_tokens=16, max_running=8), **options)
    prompts = [ids(length, length) for length in (17, 30, 33)]
    expected = [
        lone(roomy, prompt, index, 40).token_ids for prompt in prompts for index in range(3)
    ]
    found = tight.generate(prompts, sampled(3, 40))
    assert [answer.token_ids for answer in found] == expected
    assert tight.counters()["preemptions"] > 0


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_receiver_that_raises_at_one_answer_ends_all(make_engine: MakeEngine, index: int) -> None:
    engine = make_engine()
    seen: queue.SimpleQueue[Output] = queue.SimpleQueue()

    def broken(output: Output) -> None:
        seen.put(output)
        if output.index == index:
            raise RuntimeError("receiver")

    engine.submit(ids(20, 1), sampled(3, 900), broken)
    outputs = [seen.get(timeout=20)]
    while sum(output.finish_reason is not None for output in outputs) < 3:
        outputs.append(seen.get(timeout=20))
    assert engine.counters()["generated_tokens"] == 3
    assert engine.generate([ids(20, 1)], greedy(2))[0].finish_reason == "length"


def test_a_fault_in_the_text_of_one_answer_ends_that_one(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = make_engine(), make_engine()
    expected = [lone(other, ids(20, 1), index) for index in range(3)]
    bad = expected[1].token_ids[3]
    assert all(bad not in expected[index].token_ids for index in (0, 2))
    push = Detokenizer.push

    def broken(self: Detokenizer, token: int) -> str:
        if token == bad:
            raise ArithmeticError("boom")
        return push(self, token)

    monkeypatch.setattr(Detokenizer, "push", broken)
    answers = engine.generate([ids(20, 1)], sampled(3))
    assert [answer.error for answer in answers] == [None, "ArithmeticError: boom", None]
    assert answers[0].token_ids == expected[0].token_ids
    assert answers[2].token_ids == expected[2].token_ids


@pytest.mark.parametrize("tokens", [20, 40])
def test_a_failing_step_ends_all_answers_whether_they_have_forked_off_or_not(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    engine = make_engine()
    model = engine._loop._steps._model
    forward = model.forward
    failures: list[int] = []

    def broken(spans: list[Span]) -> torch.Tensor:
        if any(span.start + len(span.tokens) >= tokens for span in spans):
            failures.append(len(spans))
            raise ArithmeticError("boom")
        return forward(spans)

    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", broken)
        answers = engine.generate([ids(20, 1)], sampled(3, 30))
    assert {answer.error for answer in answers} == {"ArithmeticError: boom"}
    assert {len(answer.token_ids) for answer in answers} == {tokens - 20}
    assert failures == [1 if tokens == 20 else 3], "none of them is tried again"
    assert engine.audit() == []


@pytest.mark.parametrize("n", [0, -1, 129, 2.0, True])
def test_a_number_of_answers_out_of_range_is_named(n: Any) -> None:
    with pytest.raises(ValueError, match=r"n must be a whole number from 1 to 128"):
        GenerationParams(n=n)


def test_more_answers_than_run_at_a_time_are_refused(make_engine: MakeEngine) -> None:
    engine = make_engine(limits=Limits(max_running=4))
    with pytest.raises(RequestRefused, match=r"n is 5, .* at most 4 .*--max-running") as refusal:
        engine.submit(ids(20, 1), sampled(5), lambda _: None)
    assert refusal.value.param == "n"
    assert len(engine.generate([ids(20, 1)], sampled(4))) == 4


def test_answers_that_cannot_all_begin_in_the_memory_are_refused(make_engine: MakeEngine) -> None:
    engine = make_engine(num_blocks=8)
    # 6 blocks for the prompt, and one each for the second and third answer.
    assert len(engine.generate([ids(96, 1)], sampled(3, 2))) == 3
    with pytest.raises(RequestRefused, match=r"96 tokens .* 128; .*--kv-memory") as refusal:
        engine.submit(ids(96, 1), sampled(4), lambda _: None)
    assert refusal.value.param == "n"
