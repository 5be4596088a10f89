"""A model with sliding windows: neither chunks nor blocks nor neighbours change its logits."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from radix_engine.model.batch import Span
from radix_engine.model.runner import ModelRunner
from tests.model.helpers import greedy, random_tokens, tiny_runner

FAMILIES: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 21, "num_hidden_layers": 3},
    "qwen3": {
        "use_sliding_window": True,
        "sliding_window": 21,
        "max_window_layers": 1,
        "num_hidden_layers": 3,
    },
}
WINDOWS = {"mistral": (21, 21, 21), "qwen3": (None, 21, 21)}


@pytest.fixture(scope="module", params=FAMILIES)
def windowed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ModelRunner, Any]:
    """A runner, its blocks full of NaN, and the same model in transformers."""
    path = tmp_path_factory.mktemp(request.param)
    runner = tiny_runner(
        path, request.param, num_blocks=128, block_size=4, **FAMILIES[request.param]
    )
    assert runner.model.config.windows == WINDOWS[request.param]
    for layer in runner.memory.layers:
        layer.fill_(float("nan"))
    reference: Any = AutoModelForCausalLM.from_pretrained(path / "model", dtype=torch.float32)
    return runner, reference


def expected(reference: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = reference(torch.tensor([tokens]), use_cache=False).logits
    return logits[0]


def assert_near(left: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=1e-4)


@pytest.mark.parametrize("chunks", [[80], [20, 1, 21, 22, 16], [1, 79], [70, 5, 5]])
def test_chunks_of_a_prompt_longer_than_the_window_yield_its_logits(
    windowed: tuple[ModelRunner, Any], chunks: list[int]
) -> None:
    runner, reference = windowed
    tokens = random_tokens(80, len(chunks))
    table = random.Random(1).sample(range(128), 20)
    start, logits = 0, []
    for length in chunks:
        span = Span(tokens[start : start + length], start, table, length)
        logits.append(runner.forward([span]))
        start += length
    assert_near(torch.cat(logits), expected(reference, tokens))


def test_greedy_tokens_equal_those_of_transformers(windowed: tuple[ModelRunner, Any]) -> None:
    runner, reference = windowed
    tokens = random_tokens(60)
    table = random.Random(2).sample(range(128), 21)
    generated = reference.generate(
        torch.tensor([tokens]), max_new_tokens=24, do_sample=False, eos_token_id=None
    )
    assert greedy(runner, tokens, 24, table) == generated[0, 60:].tolist()


def test_mixed_spans_yield_what_each_yields_alone(windowed: tuple[ModelRunner, Any]) -> None:
    runner, reference = windowed
    blocks = random.Random(3).sample(range(128), 128)
    spans, wanted = [], []
    for i, (start, length) in enumerate([(0, 30), (70, 1), (22, 1), (5, 1), (40, 33), (0, 2)]):
        tokens = random_tokens(start + length, i)
        table = [blocks.pop() for _ in range(-(-len(tokens) // 4))]
        if start:
            runner.forward([Span(tokens[:start], 0, table, 0)])
        spans.append(Span(tokens[start:], start, table, 1))
        wanted.append(expected(reference, tokens)[-1])
    assert_near(runner.forward(spans), torch.stack(wanted))


def test_what_fell_out_of_every_window_is_not_read(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "mistral", block_size=4, **FAMILIES["mistral"])
    tokens = random_tokens(61)
    table = list(range(16))
    runner.forward([Span(tokens[:60], 0, table, 0)])
    before = runner.forward([Span(tokens[60:], 60, table, 1)])
    # The query at 60 sees 40 to 60: blocks 0 to 9 hold what nobody reads any more.
    for layer in runner.memory.layers:
        layer[:10] = float("nan")
    assert torch.equal(runner.forward([Span(tokens[60:], 60, table, 1)]), before)
    for layer in runner.memory.layers:
        layer[10] = float("nan")
    assert runner.forward([Span(tokens[60:], 60, table, 1)]).isnan().all()
