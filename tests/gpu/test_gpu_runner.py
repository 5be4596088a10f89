"""The GPU's forward pass, run on a CPU: it yields what the model's own runner yields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch

from radix_engine.gpu.runner import GpuRunner
from radix_engine.model.batch import Follow, Span
from radix_engine.model.runner import ModelRunner
from radix_engine.model.served import Runner
from tests.gpu.runners import FAMILIES, MAKERS, all_logits, assert_near, tables, tiny_model
from tests.model.helpers import random_tokens


class Case(NamedTuple):
    """A model's own runner, and the one under test over the same weights."""

    model_runner: ModelRunner
    runner: GpuRunner


@pytest.fixture(scope="module", params=FAMILIES)
def model_runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ModelRunner:
    return tiny_model(tmp_path_factory.mktemp("family"), request.param)


@pytest.fixture(scope="module", params=MAKERS)
def case(request: pytest.FixtureRequest, model_runner: ModelRunner) -> Case:
    return Case(model_runner, MAKERS[request.param](model_runner.model))


def greedy(runner: Runner, prompt: Sequence[int], count: int, table: Sequence[int]) -> list[int]:
    answer = [int(runner.forward([Span(prompt, 0, table, 1)])[0].argmax())]
    while len(answer) < count:
        span = Span(answer[-1:], len(prompt) + len(answer) - 1, table, 1)
        answer.append(int(runner.forward([span])[0].argmax()))
    return answer


def test_a_whole_prompt_has_the_models_logits_after_every_token(case: Case) -> None:
    tokens = random_tokens(45)
    logits = all_logits(case.runner, tokens)
    assert logits.shape == (45, 512)
    assert_near(logits, all_logits(case.model_runner, tokens))


@pytest.mark.parametrize("chunks", [[20, 1, 21, 3], [1, 44], [40, 5]])
def test_a_prompt_in_chunks_has_the_models_logits(case: Case, chunks: list[int]) -> None:
    tokens = random_tokens(45, len(chunks))
    (table,) = tables(3)
    start, logits = 0, []
    for length in chunks:
        span = Span(tokens[start : start + length], start, table, length)
        logits.append(case.runner.forward([span]))
        start += length
    assert_near(torch.cat(logits), all_logits(case.model_runner, tokens))


def test_spans_of_all_kinds_in_one_step_yield_what_each_yields_alone(case: Case) -> None:
    # (cached tokens, tokens of this step, how many want logits)
    shapes = [(0, 33, 3), (40, 1, 1), (17, 5, 0), (0, 1, 1), (30, 2, 2), (15, 1, 1)]
    mine = tables(*[-(-(start + length) // 16) for start, length, _ in shapes])
    spans, expected = [], []
    for i, ((start, length, wanted), table) in enumerate(zip(shapes, mine, strict=True)):
        tokens = random_tokens(start + length, seed=i)
        expected.append(all_logits(case.model_runner, tokens)[start + length - wanted :])
        if start:
            case.runner.forward([Span(tokens[:start], 0, table, 0)])
        spans.append(Span(tokens[start:], start, table, wanted))
    assert_near(case.runner.forward(spans), torch.cat(expected))


def test_decodes_in_one_step_yield_what_each_yields_alone(case: Case) -> None:
    lengths = [1, 2, 16, 17, 40, 60]
    mine = tables(*[-(-length // 16) for length in lengths])
    spans, expected = [], []
    for length, table in zip(lengths, mine, strict=True):
        tokens = random_tokens(length, seed=length)
        expected.append(all_logits(case.model_runner, tokens)[-1:])
        if length > 1:
            case.runner.forward([Span(tokens[:-1], 0, table, 0)])
        spans.append(Span(tokens[-1:], length - 1, table, 1))
    assert_near(case.runner.forward(spans), torch.cat(expected))


def test_a_hit_on_anothers_blocks_yields_what_a_miss_yields(case: Case) -> None:
    shared = random_tokens(32, 1)
    tails = [random_tokens(7, 2), random_tokens(1, 3), random_tokens(20, 4)]
    expected = [all_logits(case.model_runner, shared + tail)[-1] for tail in tails]
    prefix, *own = tables(2, 1, 1, 2)
    # The first tail is computed in the step that fills the prefix, the others after it.
    spans = [
        Span(tails[0], 32, prefix + own[0], 1),
        Span(shared, 0, prefix, 0),
    ]
    assert_near(case.runner.forward(spans), torch.stack(expected[:1]))
    later = [
        Span(tail, 32, prefix + table, 1) for tail, table in zip(tails[1:], own[1:], strict=True)
    ]
    assert_near(case.runner.forward(later), torch.stack(expected[1:]))


def test_tokens_that_another_step_samples_are_taken_from_the_device(case: Case) -> None:
    # (cached tokens, tokens of this step); the last token of the first and the third is unknown
    shapes = [(20, 1), (0, 33), (15, 3), (4, 1)]
    mine = tables(*[-(-(start + length) // 16) for start, length in shapes])
    spans, expected = [], []
    for i, ((start, length), table) in enumerate(zip(shapes, mine, strict=True)):
        tokens = random_tokens(start + length, seed=i)
        expected.append(all_logits(case.model_runner, tokens)[-1])
        if start:
            case.runner.forward([Span(tokens[:start], 0, table, 0)])
        spans.append(Span(tokens[start:], start, table, 1))
    sampled = torch.tensor([3, spans[2].tokens[-1], 5, spans[0].tokens[-1]])
    for i in (0, 2):
        # 600 is no token: whatever stands there is not looked at
        spans[i] = spans[i]._replace(tokens=[*spans[i].tokens[:-1], 600])
    logits = case.runner.forward_following(spans, Follow(sampled, [36, 0], [1, 3]))
    assert_near(logits, torch.stack(expected))


def test_greedy_answers_are_the_models(case: Case) -> None:
    prompt = random_tokens(27, 5)
    (table,) = tables(3)
    assert greedy(case.runner, prompt, 16, table) == greedy(case.model_runner, prompt, 16, table)
