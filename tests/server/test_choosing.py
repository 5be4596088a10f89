"""Seeds, penalties and biases in the engine: the same answer whoever shares the batch, and whatever
is cached, preempted or forked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from radix_engine.model.batch import Span
from radix_engine.model.sampling import seed_of_answer
from scheduler import Limits
from server import Engine, GenerationParams, RequestRefused, SamplingParams
from tests.model.naive_sampling import naive_token
from tests.server.conftest import MakeEngine
from tests.server.forcing import force
from tests.server.prompts import ids

PENALTIES = SamplingParams(
    temperature=0.9,
    seed=42,
    top_p=0.95,
    min_p=0.01,
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=0.6,
    logit_bias={5: 3.0, 300: -100.0},
)


def ask(sampling: SamplingParams, max_tokens: int = 24, **fields: Any) -> GenerationParams:
    return GenerationParams(max_tokens, sampling, **fields)


def naive_answer(
    engine: Engine, prompt: Sequence[int], sampling: SamplingParams, seed: int, count: int
) -> tuple[int, ...]:
    """Without a cache or a batch; on a model that nobody else runs."""
    runner = engine._loop._steps._model
    answer: list[int] = []
    while len(answer) < count:
        tokens = [*prompt, *answer]
        logits = runner.forward([Span(tokens, 0, list(range(-(-len(tokens) // 16))), 1)])[0]
        answer.append(naive_token(logits.tolist(), sampling, seed, prompt, answer))
    return tuple(answer)


@pytest.mark.parametrize("length", [1, 40])
def test_an_answer_is_that_of_a_naive_sampler(make_engine: MakeEngine, length: int) -> None:
    engine, oracle = make_engine(), make_engine()
    prompt = ids(length, 1)
    (answer,) = engine.generate([prompt], ask(PENALTIES))
    count = answer.usage.completion_tokens
    assert count > 5
    assert answer.token_ids == naive_answer(oracle, prompt, PENALTIES, 42, count)


def test_a_seed_fixes_the_answer_alone_and_beside_others_cold_and_warm(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(192)
    prompt = ids(40, 1)
    plain = SamplingParams(temperature=1.0, seed=42)
    for sampling in (plain, PENALTIES):
        (alone,) = engine.generate([prompt], ask(sampling))
        (warm,) = engine.generate([prompt], ask(sampling))
        assert warm.usage.cached_tokens > 0
        assert warm.token_ids == alone.token_ids
        for seeds in ([None] * 3, [1, 2, 42]):
            streams = [
                engine.stream(ids(30, 7 + place), ask(SamplingParams(temperature=1.0, seed=seed)))
                for place, seed in enumerate(seeds)
            ]
            for stream in streams:
                next(stream)
            (beside,) = engine.generate([prompt], ask(sampling))
            assert beside.token_ids == alone.token_ids
            for stream in streams:
                list(stream)


def test_without_a_seed_answers_differ(make_engine: MakeEngine) -> None:
    engine = make_engine()
    sampling = SamplingParams(temperature=1.5)
    answers = {engine.generate([ids(20, 1)], ask(sampling))[0].token_ids for _ in range(4)}
    assert len(answers) == 4


def test_preemptions_change_no_penalty(make_engine: MakeEngine) -> None:
    calm, tight = make_engine(), make_engine(8, limits=Limits(max_step_tokens=16, max_running=6))
    prompts = [ids(20, seed) for seed in range(6)]
    expected = calm.generate(prompts, ask(PENALTIES, 60))
    answers = tight.generate(prompts, ask(PENALTIES, 60))
    assert tight.counters()["preemptions"] >= 2
    assert [each.token_ids for each in answers] == [each.token_ids for each in expected]


def test_each_of_several_answers_counts_its_own_tokens(make_engine: MakeEngine) -> None:
    engine, oracle = make_engine(), make_engine()
    prompt = ids(100, 1)
    answers = engine.generate([prompt], ask(PENALTIES, 16, n=4))
    assert [answer.index for answer in answers] == [0, 1, 2, 3]
    for index, answer in enumerate(answers):
        seed = seed_of_answer(42, index)
        count = answer.usage.completion_tokens
        assert answer.token_ids == naive_answer(oracle, prompt, PENALTIES, seed, count)
        assert (answer.usage.prompt_tokens, answer.usage.cached_tokens) == (100, 0)
    assert engine.counters()["computed_tokens"] == 100


def test_a_frequency_penalty_counts_and_a_presence_penalty_does_not(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    force(engine, monkeypatch, 3, [9])  # token 9 has 40, all others 0
    bias = {7: 36.5}  # what is left to lose for token 9: 3.5, so two tokens at 2 each
    frequent = SamplingParams(0.0, frequency_penalty=2.0, logit_bias=bias)
    present = SamplingParams(0.0, presence_penalty=2.0, logit_bias=bias)
    (answer,) = engine.generate([ids(3, 1)], ask(frequent, 6))
    # 40 > 36.5; 38 > 36.5; 36 < 36.5: 7; then 36 > 34.5; 34 < 34.5: 7; 34 > 32.5.
    assert answer.token_ids == (9, 9, 7, 9, 7, 9)
    (answer,) = engine.generate([ids(3, 1)], ask(present, 6))
    assert answer.token_ids == (9,) * 6


def test_a_repetition_penalty_sees_the_prompt_and_the_others_do_not(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    force(engine, monkeypatch, 3, [9])
    bias = {7: 39.0}
    prompt = [9, 9, 9]
    for fields, first in (
        ({"repetition_penalty": 1.1}, 7),  # 40 / 1.1 < 39
        ({"presence_penalty": 2.0}, 9),
        ({"frequency_penalty": 2.0}, 9),
    ):
        sampling = SamplingParams(temperature=0.0, logit_bias=bias, **fields)  # type: ignore[arg-type]
        (answer,) = engine.generate([prompt], ask(sampling, 1))
        assert answer.token_ids == (first,)


def test_a_bias_for_an_unknown_token_is_refused(make_engine: MakeEngine) -> None:
    engine = make_engine()
    with pytest.raises(RequestRefused, match="between 0 and 511") as refused:
        engine.generate([ids(3, 1)], ask(SamplingParams(logit_bias={512: 1.0})))
    assert refused.value.param == "logit_bias"
    engine.generate([ids(3, 1)], ask(SamplingParams(logit_bias={511: 1.0}), 1))


@pytest.mark.parametrize(
    ("stop", "text", "reason"),
    [
        (("beta gamma",), "alpha ", "stop"),
        (("ga",), "alpha beta ", "stop"),
        (("zzz",), "alpha beta gamma delta", "length"),
        (("delta!",), "alpha beta gamma delta", "length"),
        (("\n",), "alpha beta gamma delta", "length"),
        (("lph", "beta"), "a", "stop"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_stop_strings_are_found_across_tokens_and_hold_nothing_back_in_the_end(
    make_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    stop: tuple[str, ...],
    text: str,
    reason: str,
) -> None:
    engine = make_engine()
    whole = "alpha beta gamma delta"
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    tokens = [token for piece in pieces for token in engine.text.encode(piece)]
    force(engine, monkeypatch, 3, tokens)
    asked = GenerationParams(len(tokens), SamplingParams(temperature=0.0), stop, logprobs=0)
    (answer,) = engine.generate([ids(3, 1)], asked)
    assert (answer.text, answer.finish_reason) == (text, reason)
    assert answer.logprobs is not None
    assert len(answer.logprobs) == answer.usage.completion_tokens
    shown = ""
    for piece in engine.stream(ids(3, 1), asked):
        shown += piece.text
        assert text.startswith(shown)
    assert (shown, piece.finish_reason) == (text, reason)


@pytest.mark.parametrize(("block_size", "cached"), [(1, 14), (4, 12)])
def test_the_last_sampled_token_is_not_taken_for_cached(
    make_engine: MakeEngine, block_size: int, cached: int
) -> None:
    engine = make_engine(256, block_size=block_size, partial_blocks=False)
    oracle = make_engine(prefix_cache=False)
    sampling = SamplingParams(temperature=0.0, logit_bias={511: -100.0})  # no end of text
    prompt = ids(10, 1)
    (first,) = engine.generate([prompt], ask(sampling, 5))
    longer = [*prompt, *first.token_ids, 7, 8, 9]
    assert len(first.token_ids) == 5
    (second,) = engine.generate([longer], ask(sampling, 5))
    assert second.usage.cached_tokens == cached
    (expected,) = oracle.generate([longer], ask(sampling, 5))
    assert second.token_ids == expected.token_ids


def test_a_failing_row_of_a_prompt_ends_its_own_request_alone(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(limits=Limits(max_step_tokens=64, max_running=4))
    (expected,) = engine.generate([ids(20, 2)], ask(PENALTIES, 60))
    model = engine._loop._steps._model
    forward = model.forward

    def poisoned(spans: list[Span]) -> torch.Tensor:
        logits = forward(spans).clone()
        row = 0
        for span in spans:
            if span.num_logits > 1:
                logits[row + 1, 7] = float("nan")  # neither the first nor the last of its rows
            row += span.num_logits
        return logits

    monkeypatch.setattr(model, "forward", poisoned)
    good = engine.stream(ids(20, 2), ask(PENALTIES, 60, logprobs=1))
    pieces = [next(good)]  # it goes on in the very step that the other one fails in
    bad = list(engine.stream(ids(30, 1), ask(PENALTIES, 4, prompt_logprobs=1)))
    assert [piece.finish_reason for piece in bad] == ["error"]
    pieces += good
    assert tuple(token for piece in pieces for token in piece.token_ids) == expected.token_ids
