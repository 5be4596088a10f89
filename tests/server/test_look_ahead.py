"""An engine that plans a step while the one before is computed answers as one that does not."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.model.batch import Follow, Span
from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.served import torch_model
from radix_engine.model.source import ModelFolder
from scheduler import Limits
from server import Engine, GenerationParams, Output, SamplingParams
from server.constraint import Constraint
from server.text import TextCodec
from tests.server.prompts import greedy, ids
from tests.tiny import IM_END


@dataclass
class Watched:
    """A runner that counts the steps that took tokens from the one before."""

    inner: ModelRunner
    followed: int = 0

    @property
    def memory(self) -> Any:
        return self.inner.memory

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        self.inner.copy_rows(copies)

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        return self.inner.forward(spans)

    def forward_following(self, spans: Sequence[Span], follow: Follow | None) -> torch.Tensor:
        self.followed += follow is not None
        return self.inner.forward_following(spans, follow)


Make = Callable[..., tuple[Engine, Watched]]


@pytest.fixture
def make(tiny_folder: Path) -> Iterator[Make]:
    """Engines that look ahead, over a tiny model on the CPU."""
    torch.set_num_threads(1)
    engines: list[Engine] = []

    def make_one(
        num_blocks: int = 64,
        limits: Limits | None = None,
        *,
        look_ahead: bool = True,
        eos: frozenset[int] = frozenset(),
    ) -> tuple[Engine, Watched]:
        folder = ModelFolder(tiny_folder, "tiny")
        model = torch_model(load_model(folder, TorchPacking(torch.float32)))
        runners: list[Watched] = []

        def make_runner(blocks: int, size: int) -> Watched:
            inner = model.make_runner(blocks, size)
            assert isinstance(inner, ModelRunner)
            runners.append(Watched(inner))
            return runners[0]

        ahead = replace(model, look_ahead=look_ahead, make_runner=make_runner, eos_token_ids=eos)
        engine = Engine(ahead, TextCodec(tiny_folder), num_blocks, limits=limits)
        engines.append(engine)
        return engine, runners[0]

    yield make_one
    for engine in engines:
        if engine.is_alive():
            engine.flush_cache()
            assert engine.audit() == []
            state = engine.state()
            assert state["running"] == state["waiting"] == 0
            engine.shutdown(0.0)


def answers(
    engine: Engine, asked: Sequence[tuple[Sequence[int], GenerationParams]]
) -> list[list[tuple[int, ...]]]:
    """The tokens of all answers to each prompt, asked for at once."""
    outputs: queue.SimpleQueue[tuple[int, Output]] = queue.SimpleQueue()
    for number, (prompt, params) in enumerate(asked):
        engine.submit(prompt, params, partial(_put, outputs, number))
    found: list[list[list[int]]] = [[[] for _ in range(params.n)] for _, params in asked]
    left = sum(params.n for _, params in asked)
    while left:
        number, output = outputs.get(timeout=60)
        assert output.error is None
        found[number][output.index] += output.token_ids
        left -= output.finish_reason is not None
    return [[tuple(tokens) for tokens in of] for of in found]


def _put(outputs: queue.SimpleQueue[tuple[int, Output]], number: int, output: Output) -> None:
    outputs.put((number, output))


def sampled(max_tokens: int, seed: int, **params: Any) -> GenerationParams:
    return GenerationParams(max_tokens, SamplingParams(seed=seed, **params), ignore_eos=True)


def mixed() -> list[tuple[Sequence[int], GenerationParams]]:
    """Prompts of many lengths; some answers can be drawn ahead, others not."""
    head = ids(40, seed=9)
    return [
        (ids(5, seed=1), greedy(12)),
        ([*head, *ids(7, seed=2)], greedy(9)),
        ([*head, *ids(9, seed=3)], sampled(14, 1, temperature=0.8)),
        (ids(70, seed=4), sampled(6, 2, temperature=1.0, top_p=0.9)),
        (ids(30, seed=5), sampled(20, 3, temperature=0.7, top_k=5)),
        ([*head, *ids(3, seed=6)], sampled(11, 4, temperature=1.2, min_p=0.05)),
        (ids(12, seed=7), sampled(8, 5, temperature=1.0, repetition_penalty=1.3)),
        (ids(16, seed=8), replace(sampled(7, 6, temperature=1.0), n=2)),
        (ids(33, seed=10), replace(greedy(10), logprobs=2)),
    ]


def test_plain_answers_are_those_of_an_engine_that_waits(make: Make, make_engine: Any) -> None:
    engine, runner = make()
    plain = mixed()[:6]
    assert answers(engine, plain) == answers(make_engine(), plain)
    assert runner.followed > 15


@pytest.mark.parametrize("num_blocks", [9, 64])
def test_answers_that_need_a_look_at_their_tokens_go_with_others_that_do_not(
    make: Make, make_engine: Any, num_blocks: int
) -> None:
    limits = Limits(max_step_tokens=24, max_running=6)
    engine, runner = make(num_blocks, limits)
    asked = mixed()
    assert answers(engine, asked) == answers(make_engine(), asked)
    assert runner.followed > 0


def test_one_answer_alone_is_launched_behind_itself(make: Make) -> None:
    engine, runner = make()
    [[tokens]] = answers(engine, [(ids(20, seed=1), greedy(10))])
    assert len(tokens) == 10
    assert runner.followed == 9  # all but the first


def test_answers_with_a_constraint_wait_for_their_tokens_and_those_too_short_to_end(
    make: Make,
) -> None:
    eos = frozenset({IM_END})
    way = SamplingParams(temperature=1.0, seed=5)
    word = GenerationParams(20, way, constraint=Constraint("regex", "[a-z]{9}"))
    late = GenerationParams(12, way, min_tokens=7)
    asked = [(ids(20, seed=1), word), (ids(30, seed=2), late), (ids(40, seed=3), greedy(14))]
    waiting, _ = make(eos=eos, look_ahead=False)
    expected = answers(waiting, asked)
    engine, runner = make(eos=eos)
    assert answers(engine, asked) == expected
    engine, runner = make(eos=eos)
    [[tokens]] = answers(engine, asked[:1])
    assert tokens[-1] == IM_END
    assert runner.followed == 0
    [[tokens]] = answers(engine, asked[1:2])
    assert runner.followed == len(tokens) - 8  # the eighth token is the first to be drawn ahead


def test_a_stop_token_ends_the_answer_though_the_next_step_is_launched(make: Make) -> None:
    prompt, way = ids(20, seed=1), GenerationParams(10, SamplingParams(temperature=1.0, seed=5))
    [[tokens]] = answers(make()[0], [(prompt, way)])
    last = next(i for i in range(2, 10) if tokens[i] not in tokens[:i])
    engine, _ = make(eos=frozenset({tokens[last]}))
    [completion] = engine.generate([prompt], way)
    assert completion.token_ids == tokens[: last + 1]
    assert completion.finish_reason == "stop"
    assert completion.usage.completion_tokens == last + 1


def test_a_slot_that_was_freed_at_one_step_serves_another_at_the_next(make: Make) -> None:
    """Memory for two requests: one's blocks go to the next while a step may still read them."""
    limits = Limits(max_step_tokens=64, max_running=2)
    asked = [(ids(30, seed=seed), greedy(12)) for seed in range(8)]
    eos = frozenset(answer[4] for [answer] in answers(make()[0], asked))
    engine, runner = make(6, limits, eos=eos)
    waiting, _ = make(6, limits, eos=eos, look_ahead=False)
    found = answers(engine, asked)
    assert found == answers(waiting, asked)
    assert all(len(answer) < 12 for [answer] in found)
    assert runner.followed > 0


def test_aborts_in_flight_give_everything_back(make: Make) -> None:
    engine, _ = make(num_blocks=12, limits=Limits(max_step_tokens=32, max_running=4))
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    def abort_at(count: int) -> Callable[[Output], None]:
        seen: list[int] = []

        def receive(output: Output) -> None:
            seen.extend(output.token_ids)
            if output.finish_reason is not None:
                ended.put(output.finish_reason)
            elif len(seen) == count:
                engine.abort(output.request_id)

        return receive

    for number in range(10):
        engine.submit(ids(20 + number, seed=number), greedy(30), abort_at(1 + number % 5))
    assert [ended.get(timeout=60) for _ in range(10)] == ["abort"] * 10


@pytest.mark.parametrize(
    "way",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(temperature=1.0, top_p=0.9, seed=1),
        SamplingParams(temperature=1.0, top_k=5, seed=1),
    ],
)
def test_logits_that_are_no_numbers_end_their_request_and_the_others_go_on(
    make: Make, monkeypatch: pytest.MonkeyPatch, way: SamplingParams
) -> None:
    engine, runner = make()
    forward = runner.forward_following
    bad, good = ids(17, seed=3), ids(25, seed=4)
    params = GenerationParams(6, way, ignore_eos=True)
    [[expected]] = answers(engine, [(good, params)])

    def spoiled(spans: Sequence[Span], follow: Follow | None) -> torch.Tensor:
        logits = forward(spans, follow).clone()
        row = 0
        for span in spans:
            if span.num_logits and span.start <= len(bad) - 1 and list(span.tokens)[-1] == bad[-1]:
                logits[row] = float("nan")
            row += span.num_logits
        return logits

    monkeypatch.setattr(runner, "forward_following", spoiled)
    outputs: queue.SimpleQueue[tuple[int, Output]] = queue.SimpleQueue()
    engine.submit(good, params, partial(_put, outputs, 0))
    engine.submit(bad, params, partial(_put, outputs, 1))
    tokens: list[int] = []
    left = 2
    while left:
        number, output = outputs.get(timeout=60)
        left -= output.finish_reason is not None
        if number == 0:
            assert output.error is None
            tokens += output.token_ids
        else:
            assert output.error == "the model's logits are not finite numbers"
    assert tuple(tokens) == expected


def test_memory_that_runs_out_at_a_launch_is_tried_again_in_parts(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, runner = make()
    asked = [(ids(20, seed=seed), greedy(8)) for seed in range(4)]
    expected = answers(engine, asked)
    engine.flush_cache()
    inner = runner.forward_following

    def small(spans: Sequence[Span], follow: Follow | None) -> torch.Tensor:
        if sum(len(span.tokens) for span in spans) > 20:
            raise torch.OutOfMemoryError("out of memory")
        return inner(spans, follow)

    monkeypatch.setattr(runner, "forward_following", small)
    assert answers(engine, asked) == expected
