"""An engine whose tokens FlashInfer's sampling draws: a seed fixes an answer, and torch can take
over. On a CPU, with a stand-in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.gpu.served import gpu_model
from radix_engine.model.linear import Linear, TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.served import ServedModel, torch_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel
from server import Engine, GenerationParams, SamplingParams
from server.text import TextCodec
from tests.gpu.binding import bound_fake
from tests.server.prompts import greedy, ids
from tests.server.test_look_ahead import answers, sampled
from tests.tiny import make_tiny_folder

MakeEngine = Callable[..., Engine]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with heads that FlashInfer's kernels know."""
    return make_tiny_folder(tmp_path_factory.mktemp("models") / "tiny", tokenizer=True, head_dim=64)


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel[Linear]:
    return load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32))


@pytest.fixture
def engine_over(folder: Path) -> Iterator[MakeEngine]:
    """Engines, which look ahead unless told; audited and found free of leaks at the end."""
    torch.set_num_threads(1)
    engines: list[Engine] = []

    def make(served: ServedModel, look_ahead: bool = True) -> Engine:
        served = replace(served, eos_token_ids=frozenset(), look_ahead=look_ahead)
        engines.append(Engine(served, TextCodec(folder), 96))
        return engines[-1]

    yield make
    for engine in engines:
        engine.flush_cache()
        assert engine.audit() == []
        engine.shutdown(0.0)


PROMPT = ids(40, seed=1)
SEEDED = sampled(20, 42, temperature=1.0, top_p=0.9)
UNSEEDED = GenerationParams(20, SamplingParams(), ignore_eos=True)


@pytest.mark.parametrize(
    "neighbour",
    [
        UNSEEDED,
        sampled(20, 42, temperature=1.0, top_p=0.9),
        sampled(20, 7, temperature=0.6, top_k=5),
        sampled(20, 7, temperature=1.0, min_p=0.02),
        greedy(20),
        # These keep the steps from being planned ahead.
        replace(greedy(20), logprobs=1),
        sampled(20, 3, temperature=1.0, repetition_penalty=1.2),
        replace(sampled(20, 4, temperature=1.3), n=3),
    ],
    ids=range(8),
)
def test_a_seed_fixes_the_answer_whoever_shares_the_batch(
    model: LoadedModel[Linear], engine_over: MakeEngine, neighbour: GenerationParams
) -> None:
    fake = bound_fake()
    engine = engine_over(gpu_model(model, fake))
    [[alone]] = answers(engine, [(PROMPT, SEEDED)])
    assert fake.bound["top_p_renorm_probs"] > 20
    [[warm]] = answers(engine, [(PROMPT, SEEDED)])
    assert warm == alone
    beside = [(ids(10 + place, seed=place), neighbour) for place in (2, 3, 4)]
    for place in (0, 2):
        asked = [*beside[:place], (PROMPT, SEEDED), *beside[place:]]
        assert answers(engine, asked)[place] == [alone]
    [[on_torch]] = answers(engine_over(torch_model(model)), [(PROMPT, SEEDED)])
    assert on_torch == alone


@pytest.mark.parametrize("params", [SEEDED, replace(SEEDED, logprobs=1)])
def test_steps_that_are_waited_for_use_it_too(
    model: LoadedModel[Linear], engine_over: MakeEngine, params: GenerationParams
) -> None:
    fake = bound_fake()
    engine = engine_over(gpu_model(model, fake), look_ahead=False)
    at_load = fake.bound["softmax"]
    [[tokens]] = answers(engine, [(PROMPT, params)])
    assert fake.bound["softmax"] == at_load + len(tokens)


def test_without_a_seed_answers_differ(model: LoadedModel[Linear], engine_over: MakeEngine) -> None:
    engine = engine_over(gpu_model(model, bound_fake()))
    found = [answers(engine, [(PROMPT, UNSEEDED)])[0][0] for _ in range(3)]
    assert len(set(found)) == 3


def test_where_it_fails_torch_draws_the_same_and_one_line_says_so(
    model: LoadedModel[Linear], engine_over: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    asked = [(PROMPT, SEEDED), (ids(9, seed=4), sampled(9, 5, temperature=0.8, top_k=9))]
    expected = answers(engine_over(gpu_model(model, bound_fake())), asked)
    fake = bound_fake()
    tried: list[int] = []

    def refuse(*_: Any, **__: Any) -> Any:
        tried.append(1)
        raise RuntimeError("no kernel image is available")

    fake.top_p_renorm_probs = refuse
    with caplog.at_level(logging.WARNING):
        engine = engine_over(gpu_model(model, fake))
        at_load = len(tried), fake.bound["softmax"]
        assert answers(engine, asked) == expected
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("RuntimeError: no kernel image is available")
    assert (len(tried), fake.bound["softmax"]) == at_load


def test_torchs_kernels_come_with_torchs_sampling(model: LoadedModel[Linear]) -> None:
    assert gpu_model(model, None).make_drawer is None
    assert torch_model(model).make_drawer is None
