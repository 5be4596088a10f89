"""Log-probabilities of answers and prompts: the right ones, one for each token, always."""

from __future__ import annotations

import queue
from typing import Any

import pytest
import torch

from radix_engine.cache import CacheMode, Reason
from radix_engine.model.batch import Span
from radix_engine.model.logprobs import FLOOR
from radix_engine.model.token_logprob import TokenLogprob
from scheduler import Limits
from server import Completion, Engine, GenerationParams, Output, SamplingParams
from tests.server.conftest import MakeEngine
from tests.server.prompts import GREEDY, greedy, ids

TOLERANCE = 1e-4  # of the torch path, whose sums depend on what is computed together


def params(max_tokens: int = 6, top: int = 3, **fields: Any) -> GenerationParams:
    """A greedy answer with all log-probabilities."""
    asked: dict[str, Any] = {"sampling": GREEDY, "logprobs": top, "prompt_logprobs": top}
    return GenerationParams(max_tokens, **asked | fields)


def oracle(engine: Engine, tokens: list[int]) -> torch.Tensor:
    """Log-probabilities [tokens - 1, vocabulary] of each token after the first: all at once, on
    blocks that nobody uses."""
    runner = engine._loop._steps._model
    blocks = -(-len(tokens) // 16)
    span = Span(tokens, 0, list(range(blocks)), len(tokens))
    return runner.forward([span]).log_softmax(dim=-1)[:-1]


def assert_right(
    entries: list[TokenLogprob], tokens: list[int], expected: torch.Tensor, top: int
) -> None:
    assert [entry.token for entry in entries] == tokens
    for entry, row in zip(entries, expected, strict=True):
        assert entry.logprob == pytest.approx(float(row[entry.token]), abs=TOLERANCE)
        values = row.topk(top).values.tolist() if top else []
        assert [value for _, value in entry.top] == pytest.approx(values, abs=TOLERANCE)
        for token, value in entry.top:
            assert value == pytest.approx(float(row[token]), abs=TOLERANCE)


@pytest.mark.parametrize("top", [0, 1, 20])
@pytest.mark.parametrize("length", [1, 2, 16, 17, 63, 64, 65])
def test_all_tokens_have_the_log_probabilities_of_a_run_over_all_at_once(
    make_engine: MakeEngine, length: int, top: int
) -> None:
    engine = make_engine(limits=Limits(max_step_tokens=24, max_running=4))
    prompt = ids(length, 1)
    (answer,) = engine.generate([prompt], params(5, top))
    engine.shutdown(grace_s=1.0)
    whole = [*prompt, *answer.token_ids]
    expected = oracle(engine, whole)
    assert answer.prompt_logprobs is not None
    assert answer.logprobs is not None
    assert len(answer.prompt_logprobs) == answer.usage.prompt_tokens == length
    assert len(answer.logprobs) == answer.usage.completion_tokens == 5
    assert answer.prompt_logprobs[0] is None
    known = [entry for entry in (*answer.prompt_logprobs, *answer.logprobs) if entry is not None]
    assert_right(known, whole[1:], expected, top)


@pytest.mark.parametrize("top", [1, 5])
def test_prompt_log_probabilities_are_the_same_cold_and_warm(
    make_engine: MakeEngine, top: int
) -> None:
    engine = make_engine()
    prompt = ids(70, 1)
    (cold,) = engine.generate([prompt], params(4, top))
    (warm,) = engine.generate([prompt], params(4, top))
    assert cold.prompt_logprobs == warm.prompt_logprobs
    assert cold.logprobs == warm.logprobs
    for answer in (cold, warm):
        assert answer.prompt_logprobs is not None
        assert (answer.prompt_logprobs[0], len(answer.prompt_logprobs)) == (None, 70)
        assert answer.usage.cached_tokens == 0
        assert answer.usage.match_end is not None
        assert answer.usage.match_end.reason is Reason.BYPASSED


def test_what_is_computed_for_prompt_log_probabilities_is_stored(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompt = ids(70, 1)
    (cold,) = engine.generate([prompt], params(4))
    (warm,) = engine.generate([prompt], greedy(4))
    assert warm.usage.cached_tokens == 64
    assert warm.token_ids == cold.token_ids
    read_only = params(4, cache_mode=CacheMode.READ_ONLY)
    engine.generate([ids(70, 2)], read_only)
    (other,) = engine.generate([ids(70, 2)], greedy(4))
    assert other.usage.cached_tokens == 0


@pytest.mark.parametrize("length", [63, 64, 65, 80])
def test_the_first_token_after_a_cached_prefix_has_the_value_that_it_has_cold(
    make_engine: MakeEngine, length: int
) -> None:
    engine = make_engine()
    asking = params(4, prompt_logprobs=None)
    (cold,) = engine.generate([ids(length, 1)], asking)
    (warm,) = engine.generate([ids(length, 1)], asking)
    assert warm.usage.cached_tokens > 0
    assert cold.logprobs is not None
    assert warm.logprobs is not None
    assert [entry.token for entry in warm.logprobs] == list(warm.token_ids) == list(cold.token_ids)
    for ours, theirs in zip(warm.logprobs, cold.logprobs, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=TOLERANCE)


def streamed(engine: Engine, prompt: list[int], asked: GenerationParams) -> list[Completion]:
    """The same as whole answers, checking that pieces carry as many entries as tokens."""
    tokens: dict[int, list[int]] = {index: [] for index in range(asked.n)}
    entries: dict[int, list[TokenLogprob]] = {index: [] for index in range(asked.n)}
    last: dict[int, Output] = {}
    first: dict[int, Output] = {}
    for piece in engine.stream(prompt, asked):
        assert piece.logprobs is not None
        assert [entry.token for entry in piece.logprobs] == list(piece.token_ids)
        assert (piece.prompt_logprobs is None) == (
            piece.index in first or asked.prompt_logprobs is None
        )
        first.setdefault(piece.index, piece)
        tokens[piece.index] += piece.token_ids
        entries[piece.index] += piece.logprobs
        last[piece.index] = piece
    return [
        Completion(
            "",
            tuple(tokens[index]),
            last[index].finish_reason or "",
            last[index].usage,
            logprobs=tuple(entries[index]),
            prompt_logprobs=tuple(first[index].prompt_logprobs or ()),
        )
        for index in range(asked.n)
    ]


def same(ours: Completion, theirs: Completion) -> None:
    assert ours.token_ids == theirs.token_ids
    assert ours.logprobs is not None
    assert theirs.logprobs is not None
    assert len(ours.logprobs) == ours.usage.completion_tokens == len(theirs.logprobs)
    for left, right in zip(
        (*(ours.prompt_logprobs or ()), *ours.logprobs),
        (*(theirs.prompt_logprobs or ()), *theirs.logprobs),
        strict=True,
    ):
        if left is None or right is None:
            assert left is right
            continue
        assert left.token == right.token
        assert left.logprob == pytest.approx(right.logprob, abs=TOLERANCE)


def test_preemptions_neither_lose_nor_double_an_entry(make_engine: MakeEngine) -> None:
    sampling = SamplingParams(temperature=0.8, seed=7, frequency_penalty=0.5)
    asked = params(60, 2, sampling=sampling)
    calm, tight = make_engine(), make_engine(8, limits=Limits(max_step_tokens=16, max_running=6))
    prompts = [ids(20, seed) for seed in range(6)]
    expected = calm.generate(prompts, asked)
    answers = tight.generate(prompts, asked)
    assert tight.counters()["preemptions"] >= 2
    for ours, theirs in zip(answers, expected, strict=True):
        assert ours.finish_reason == theirs.finish_reason
        same(ours, theirs)


def test_a_stream_gives_the_same_entries_piece_by_piece(make_engine: MakeEngine) -> None:
    engine = make_engine()
    sampling = SamplingParams(temperature=1.0, seed=3)
    asked = params(12, 2, sampling=sampling, n=3)
    for ours, theirs in zip(
        streamed(engine, ids(20, 1), asked), engine.generate([ids(20, 1)], asked), strict=True
    ):
        same(ours, theirs)


def test_several_answers_share_the_prompts_entries_and_have_their_own(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    sampling = SamplingParams(temperature=1.0, seed=3)
    answers = engine.generate([ids(50, 1)], params(8, 2, sampling=sampling, n=4))
    assert [answer.index for answer in answers] == [0, 1, 2, 3]
    assert len({answer.prompt_logprobs for answer in answers}) == 1
    assert len({answer.logprobs for answer in answers}) == 4
    for answer in answers:
        assert answer.logprobs is not None
        assert [entry.token for entry in answer.logprobs] == list(answer.token_ids)
    assert engine.counters()["computed_tokens"] == 50


def test_an_answer_whose_first_sibling_ends_early_has_all_entries_of_the_prompt(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(limits=Limits(max_step_tokens=16, max_running=4))
    steps = engine._loop._steps
    forward = steps._model.forward
    calls = []

    def forward_and_end_the_first(spans: list[Span]) -> torch.Tensor:
        logits = forward(spans)
        calls.append(len(spans))
        if len(calls) == 2:  # in the middle of the prompt; the second answer begins it anew
            first = next(iter(steps.active.answers.values()))
            steps.active.end_answer(first, "abort")
        return logits

    (expected,) = engine.generate([ids(70, 1)], params(4))
    engine.flush_cache()
    monkeypatch.setattr(steps._model, "forward", forward_and_end_the_first)
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    engine.submit(ids(70, 1), params(4, n=2), outputs.put)
    pieces: list[Output] = []
    while sum(piece.finish_reason is not None for piece in pieces) < 2:
        pieces.append(outputs.get(timeout=20))
    second = [piece for piece in pieces if piece.index == 1]
    assert second[0].prompt_logprobs is not None
    assert len(second[0].prompt_logprobs) == 70
    assert expected.prompt_logprobs is not None
    for ours, theirs in zip(
        second[0].prompt_logprobs[1:], expected.prompt_logprobs[1:], strict=True
    ):
        assert ours is not None
        assert theirs is not None
        assert ours.token == theirs.token
        assert ours.logprob == pytest.approx(theirs.logprob, abs=TOLERANCE)


def test_who_does_not_ask_gets_none_and_pays_nothing(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    def refuse(*_: object) -> list[TokenLogprob]:
        raise AssertionError("nobody asked")

    monkeypatch.setattr("server.choosing.token_logprobs", refuse)
    (answer,) = engine.generate([ids(20, 1)], greedy(4))
    assert (answer.finish_reason, answer.logprobs, answer.prompt_logprobs) == ("length", None, None)


def test_values_are_the_models_own_whatever_changes_the_choice(make_engine: MakeEngine) -> None:
    engine = make_engine()
    sampling = SamplingParams(
        temperature=0.5,
        top_k=1,
        logit_bias={7: 100.0},
        presence_penalty=2.0,
        repetition_penalty=2.0,
    )
    (plain,) = engine.generate([ids(20, 1)], params(1, 20))
    (biased,) = engine.generate([ids(20, 1)], params(1, 20, sampling=sampling))
    assert biased.token_ids == (7,)
    assert plain.logprobs is not None
    assert biased.logprobs is not None
    assert biased.logprobs[0].top == plain.logprobs[0].top
    assert biased.logprobs[0].logprob < plain.logprobs[0].top[0][1]


def test_hopeless_tokens_have_the_floor(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    model = engine._loop._steps._model
    forward = model.forward

    def steep(spans: list[Span]) -> torch.Tensor:
        logits = torch.full_like(forward(spans), -30000.0)
        logits[:, 9] = 30000.0
        return logits

    monkeypatch.setattr(model, "forward", steep)
    (answer,) = engine.generate([ids(3, 1)], params(1, 5, sampling=SamplingParams(top_k=1)))
    assert answer.logprobs is not None
    assert answer.prompt_logprobs is not None
    assert [value for _, value in answer.logprobs[0].top] == [0.0, *[FLOOR] * 4]
    assert [each and each.logprob for each in answer.prompt_logprobs] == [None, FLOOR, FLOOR]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("length", [1, 40, 64])
def test_no_tokens_may_be_asked_for(make_engine: MakeEngine, length: int, n: int) -> None:
    engine = make_engine(limits=Limits(max_step_tokens=32, max_running=4))
    answers = engine.generate([ids(length, 1)], params(0, 2, n=n))
    for index, answer in enumerate(answers):
        assert (answer.index, answer.text, answer.token_ids) == (index, "", ())
        assert (answer.finish_reason, answer.logprobs) == ("length", ())
        assert answer.prompt_logprobs is not None
        assert len(answer.prompt_logprobs) == length
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (length, 0)
    counters = engine.counters()
    assert (counters["generated_tokens"], counters["computed_tokens"]) == (0, length)
    assert (counters["requests_finished"], counters["requests_aborted"]) == (n, 0)
    (next_one,) = engine.generate([ids(length, 1)], greedy(2))
    assert next_one.usage.cached_tokens == min(length - 1, length // 16 * 16)


def test_log_probabilities_beyond_the_limit_and_with_beams_are_refused() -> None:
    refused: list[dict[str, Any]] = [{"logprobs": 21}, {"prompt_logprobs": -1}, {"logprobs": True}]
    for fields in refused:
        with pytest.raises(ValueError, match=f"{next(iter(fields))} must be .* 0 to 20"):
            GenerationParams(**fields)
    with_beams: list[dict[str, Any]] = [
        {"logprobs": 0},
        {"prompt_logprobs": 0},
        {"max_tokens": 0},
        {"sampling": SamplingParams(temperature=0, presence_penalty=1)},
        {"sampling": SamplingParams(temperature=0, logit_bias={1: 1})},
    ]
    for fields in with_beams:
        with pytest.raises(ValueError, match=f"{next(iter(fields))} must .* with beam search"):
            GenerationParams(use_beam_search=True, **fields)
