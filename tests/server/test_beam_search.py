"""Beam search over a tiny random model, of which a tenth of the tokens end an answer."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from transformers import AutoModelForCausalLM

from radix_engine.model.batch import Span
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.source import ModelFolder
from scheduler import Limits
from server import Engine, GenerationParams, Output, RequestRefused, SamplingParams
from tests.server.conftest import MakeEngine
from tests.server.naive_beams import Tokens, naive_beam_search
from tests.server.prompts import greedy, ids
from tests.tiny import IM_END, make_tiny_folder

Early = bool | Literal["never"]
ENDS = [*range(7, 500, 10), IM_END]
KINDS: list[tuple[int, float, Early]] = [
    (1, 1.0, False),
    (2, 1.0, True),
    (3, 0.0, False),
    (4, 1.0, "never"),
    (4, 2.0, False),
    (5, -1.0, True),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_tiny_folder(tmp_path_factory.mktemp("models") / "ending", tokenizer=True, scale=0.2)
    config = {"eos_token_id": ENDS, "bos_token_id": 510}
    (path / "generation_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def log_probs_after(folder: Path) -> Callable[[list[int]], Callable[[Tokens], list[float]]]:
    """What follows a prompt and some tokens, each time computed from the very beginning."""
    runner = ModelRunner(load_model(ModelFolder(folder, "tiny"), TorchPacking(torch.float32)), 8)
    known: dict[Tokens, list[float]] = {}

    def after(prompt: list[int]) -> Callable[[Tokens], list[float]]:
        def log_probs(tokens: Tokens) -> list[float]:
            whole = (*prompt, *tokens)
            if whole not in known:
                logits = runner.forward([Span(list(whole), 0, list(range(8)), 1)])
                known[whole] = logits.double().log_softmax(dim=-1)[0].tolist()
            return known[whole]

        return log_probs

    return after


def beams(n: int, max_tokens: int = 10, **fields: Any) -> GenerationParams:
    return GenerationParams(max_tokens, n=n, use_beam_search=True, **fields)


@pytest.mark.parametrize(("width", "penalty", "early"), KINDS)
def test_the_answers_are_those_of_the_naive_search(
    make_engine: MakeEngine,
    folder: Path,
    log_probs_after: Callable[[list[int]], Callable[[Tokens], list[float]]],
    width: int,
    penalty: float,
    early: Early,
) -> None:
    engine = make_engine(folder=folder)
    for length in (1, 15, 32, 40):
        prompt = ids(length, length)
        params = beams(width, length_penalty=penalty, early_stopping=early)
        found = engine.generate([prompt], params)
        expected = naive_beam_search(
            log_probs_after(prompt), width, 10, frozenset(ENDS), penalty, early
        )
        assert [answer.token_ids for answer in found] == [each.tokens for each in expected]
        assert [answer.score for answer in found] == pytest.approx(
            [each.score for each in expected], abs=1e-4
        )
        ends = ["stop" if each.tokens[-1] in ENDS else "length" for each in expected]
        assert [answer.finish_reason for answer in found] == ends
        assert [answer.usage.completion_tokens for answer in found] == [
            len(each.tokens) for each in expected
        ]


@pytest.mark.parametrize(("width", "penalty", "early"), KINDS)
def test_the_answers_are_those_of_transformers(
    make_engine: MakeEngine, folder: Path, width: int, penalty: float, early: Early
) -> None:
    reference: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = ids(33, 5)
    found = make_engine(folder=folder).generate(
        [prompt], beams(width, length_penalty=penalty, early_stopping=early)
    )
    options = {} if width == 1 else {"length_penalty": penalty, "early_stopping": early}
    expected = reference.generate(
        torch.tensor([prompt]),
        max_new_tokens=10,
        do_sample=False,
        num_beams=width,
        num_return_sequences=width,
        eos_token_id=ENDS,
        pad_token_id=1,
        **options,
    )[:, len(prompt) :].tolist()
    for answer, tokens in zip(found, expected, strict=True):
        length = len(answer.token_ids)
        assert answer.token_ids == tuple(tokens[:length])
        assert set(tokens[length:]) <= {1}


def test_the_text_is_that_of_the_tokens_without_the_end(
    make_engine: MakeEngine, folder: Path
) -> None:
    engine = make_engine(folder=folder)
    for answer in engine.generate(["the cat"], beams(4)):
        shown = [token for token in answer.token_ids if token not in ENDS]
        assert len(answer.token_ids) - len(shown) == (answer.finish_reason == "stop")
        assert answer.text == engine.text.decode(shown)


def test_more_beams_than_answers_are_followed_where_best_of_says_so(
    make_engine: MakeEngine, folder: Path
) -> None:
    engine = make_engine(folder=folder)
    wide = engine.generate([ids(20, 3)], beams(5))
    best = engine.generate([ids(20, 3)], beams(2, best_of=5))
    narrow = engine.generate([ids(20, 3)], beams(2))
    assert [answer.token_ids for answer in best] == [answer.token_ids for answer in wide[:2]]
    assert [answer.token_ids for answer in narrow] != [answer.token_ids for answer in wide[:2]]


def test_one_beam_is_greedy(make_engine: MakeEngine) -> None:
    engine = make_engine()
    (beam,) = engine.generate([ids(20, 1)], beams(1, 12))
    (lone,) = engine.generate([ids(20, 1)], greedy(12))
    assert beam.token_ids == lone.token_ids


def test_the_prompt_is_computed_once_and_beams_share_its_blocks(make_engine: MakeEngine) -> None:
    engine = make_engine(num_blocks=18)
    engine.generate([ids(100, 1)], beams(6, 20))
    counters = engine.counters()
    assert (counters["computed_tokens"], counters["recomputed_tokens"]) == (100, 0)
    assert counters["prompt_tokens"] == 100
    # The prompt's 6 full blocks, and 2 for each of 6 beams; without sharing it would be 6 * 8.
    assert counters["preemptions"] == 0


@pytest.mark.parametrize("num_blocks", [5, 6])
@pytest.mark.parametrize("options", [{}, {"index": "hash"}, {"prefix_cache": False}], ids=str)
def test_memory_too_small_for_the_beams_at_a_time_changes_no_answer(
    make_engine: MakeEngine, num_blocks: int, options: dict[str, Any]
) -> None:
    tight = make_engine(num_blocks, limits=Limits(max_step_tokens=16, max_running=8), **options)
    roomy = make_engine()
    prompts = [ids(length, length) for length in (17, 30, 33)]
    params = beams(3, 30)
    expected = [answer.token_ids for answer in roomy.generate(prompts, params)]
    assert [answer.token_ids for answer in tight.generate(prompts, params)] == expected
    assert tight.counters()["preemptions"] > 0
    assert tight.audit() == []


def test_searches_and_other_requests_share_the_steps(make_engine: MakeEngine, folder: Path) -> None:
    engine = make_engine(12, folder=folder, limits=Limits(max_step_tokens=20, max_running=6))
    alone = make_engine(folder=folder)
    sampled = GenerationParams(9, SamplingParams(temperature=1.0, seed=3), n=2)
    wanted = [(ids(20 + i, i), (beams(3), greedy(9), sampled)[i % 3]) for i in range(12)]
    results: dict[int, list[tuple[int, ...]]] = {}

    def ask(place: int) -> None:
        prompt, params = wanted[place]
        results[place] = [answer.token_ids for answer in engine.generate([prompt], params)]

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for place, (prompt, params) in enumerate(wanted):
        assert results[place] == [
            answer.token_ids for answer in alone.generate([prompt], params)
        ], place


def finished(outputs: queue.SimpleQueue[Output], count: int) -> list[Output]:
    return [outputs.get(timeout=20) for _ in range(count)]


def step_until(engine: Engine, steps: int) -> None:
    while engine.counters()["steps"] < steps:
        engine.audit()


def test_an_aborted_search_ends_all_its_answers_and_gives_everything_back(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    request_id = engine.submit(ids(40, 1), beams(3, 900), outputs.put)
    step_until(engine, 3)
    engine.abort(request_id)
    ends = finished(outputs, 3)
    assert [(each.index, each.finish_reason, each.request_id) for each in ends] == [
        (index, "abort", request_id) for index in range(3)
    ]
    assert engine.audit() == []
    assert engine.state()["running"] == engine.state()["waiting"] == 0


def test_a_search_can_be_aborted_before_its_first_step(make_engine: MakeEngine) -> None:
    engine = make_engine(num_blocks=8)
    blocker = engine.stream(ids(90, 9), greedy(20))
    next(blocker)
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    engine.abort(engine.submit(ids(90, 1), beams(3, 20), outputs.put))
    assert {each.finish_reason for each in finished(outputs, 3)} == {"abort"}
    assert list(blocker)[-1].finish_reason == "length"


def test_a_search_whose_logits_are_no_numbers_ends_with_an_error_and_others_go_on(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    expected = engine.generate([ids(20, 2)], greedy(8))[0].token_ids
    model = engine._loop._steps._model
    forward = model.forward

    def poisoned(spans: list[Span]) -> torch.Tensor:
        logits = forward(spans).clone()
        wanting = [span for span in spans if span.num_logits]
        for row, span in enumerate(wanting):
            if span.start == 33:
                logits[row, 7] = float("nan")
        return logits

    monkeypatch.setattr(model, "forward", poisoned)
    outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()
    engine.submit(ids(30, 1), beams(3), outputs.put)
    assert engine.generate([ids(20, 2)], greedy(8))[0].token_ids == expected
    ends = finished(outputs, 3)
    assert {each.finish_reason for each in ends} == {"error"}
    assert all("not finite" in (each.error or "") for each in ends)


def test_a_fault_while_choosing_ends_the_search_and_not_the_engine(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    def broken(*_: object) -> None:
        raise ArithmeticError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(engine._scheduler, "resume", broken)
        found = engine.generate([ids(30, 1)], beams(3))
    assert {(each.finish_reason, each.error) for each in found} == {
        ("error", "ArithmeticError: boom")
    }
    assert engine.audit() == []
    assert engine.generate([ids(30, 1)], beams(3))[0].finish_reason == "length"


def test_a_search_of_one_token_needs_no_further_step(make_engine: MakeEngine) -> None:
    engine = make_engine()
    found = engine.generate([ids(20, 1)], beams(3, 1))
    assert [(each.index, each.finish_reason) for each in found] == [
        (index, "length") for index in range(3)
    ]
    assert len({each.token_ids for each in found}) == 3
    assert engine.counters()["steps"] == 1


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"stop": ("x",)}, "stop"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"sampling": SamplingParams(temperature=0.5)}, "sampling"),
        ({"best_of": 1}, "best_of"),
        ({"best_of": 129}, "best_of"),
        ({"length_penalty": float("nan")}, "length_penalty"),
        ({"length_penalty": 11}, "length_penalty"),
        ({"early_stopping": "always"}, "early_stopping"),
        ({"early_stopping": 1}, "early_stopping"),
    ],
)
def test_params_that_do_not_go_with_beam_search_are_named(
    fields: dict[str, Any], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        beams(2, **fields)


def test_more_beams_than_run_at_a_time_are_refused(make_engine: MakeEngine) -> None:
    engine = make_engine(limits=Limits(max_running=4))
    with pytest.raises(RequestRefused, match="at most 4 answers") as refusal:
        engine.generate([ids(20, 1)], beams(2, best_of=5))
    assert refusal.value.param == "best_of"
