"""Models of transformers compute over KV blocks what they compute by themselves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from radix_engine.model.batch import Span
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_load import load_transformers_model
from radix_engine.model.transformers_model import TransformersModel, TransformersRunner
from tests.model.helpers import random_tokens
from tests.model.transformers_tiny import FAMILIES, WINDOWS, tiny_config, write_tiny_model

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Pair:
    """The same weights twice: run by transformers alone, and to be run over blocks."""

    family: str
    reference: Any
    model: TransformersModel

    def runner(self, num_blocks: int = 64, block_size: int = 4) -> TransformersRunner:
        """Its blocks hold NaN, which must never get into a result."""
        runner = TransformersRunner(self.model, num_blocks, block_size)
        for layer in runner.memory.layers:
            layer.fill_(float("nan"))
        return runner

    def expected(self, tokens: Sequence[int]) -> torch.Tensor:
        """The logits after each token, without a cache: [tokens, vocabulary]."""
        with torch.no_grad():
            logits: torch.Tensor = self.reference(
                torch.tensor([list(tokens)]), use_cache=False
            ).logits
        return logits[0]


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = tmp_path_factory.mktemp(request.param)
    reference = write_tiny_model(path, tiny_config(request.param))
    model = load_transformers_model(ModelFolder(path, "tiny"), torch.float32)
    return Pair(request.param, reference, model)


def tokens_of(count: int, seed: int = 0) -> list[int]:
    return random_tokens(count, seed, below=256)


def shuffled(count: int, seed: int = 0, below: int = 64) -> list[int]:
    return random.Random(seed).sample(range(below), count)


def assert_near(left: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=TOLERANCE)


def test_what_the_engine_needs_to_know_is_there(pair: Pair) -> None:
    model = pair.model
    assert (model.name, model.dtype, model.config.model_type) == (
        "tiny",
        torch.float32,
        pair.family,
    )
    assert (model.vocab_size, model.context_length) == (256, 256)
    assert model.eos_token_ids == {2}
    assert model.sampling.temperature == 1.0
    assert [layer.window for layer in model.layers] == WINDOWS[pair.family]
    # K and V of 16 numbers of 4 bytes: 4 heads in 3 layers, or 2 heads in 4 layers.
    per_token = 2 * 16 * 4 * (4 * 3 if pair.family == "gpt2" else 2 * 4)
    assert model.kv_bytes_per_token == per_token
    assert model.config.kv_bytes_per_token(torch.float32) == per_token
    assert pair.runner(block_size=16).memory.bytes_per_block == 16 * per_token


def test_greedy_tokens_equal_those_of_generate(pair: Pair) -> None:
    runner = pair.runner()
    tokens = tokens_of(60)
    table = shuffled(21)
    logits = runner.forward([Span(tokens, 0, table, 60)])
    assert logits.dtype == torch.float32
    assert_near(logits, pair.expected(tokens))
    answer = [int(logits[-1].argmax())]
    while len(answer) < 24:
        position = len(tokens) + len(answer) - 1
        answer.append(int(runner.forward([Span(answer[-1:], position, table, 1)])[0].argmax()))
    generated = pair.reference.generate(
        torch.tensor([tokens]),
        attention_mask=torch.ones(1, 60, dtype=torch.int64),
        max_new_tokens=24,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert answer == generated[0, 60:].tolist()


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("chunks", [[60], [1, 59], [7, 1, 8, 9, 35], [20, 20, 20]])
def test_neither_chunks_nor_blocks_change_the_logits(
    pair: Pair, chunks: list[int], block_size: int
) -> None:
    runner = pair.runner(64, block_size)
    tokens = tokens_of(60, 1)
    table = shuffled(60 // block_size + 1, block_size)
    start, logits = 0, []
    for length in chunks:
        span = Span(tokens[start : start + length], start, table, length)
        logits.append(runner.forward([span]))
        start += length
    assert_near(torch.cat(logits), pair.expected(tokens))


def test_spans_of_all_kinds_in_one_step_yield_what_each_yields_alone(pair: Pair) -> None:
    runner = pair.runner()
    blocks = shuffled(64, 3)
    shapes = [(0, 30, 1), (12, 20, 5), (25, 1, 1), (0, 1, 1), (9, 14, 0), (40, 1, 1), (3, 2, 2)]
    spans, expected = [], []
    for i, (start, length, num_logits) in enumerate(shapes):
        tokens = tokens_of(start + length, i)
        table = [blocks.pop() for _ in range(-(-len(tokens) // 4))]
        if start:
            runner.forward([Span(tokens[:start], 0, table, 0)])
        spans.append(Span(tokens[start:], start, table, num_logits))
        expected.append(pair.expected(tokens)[len(tokens) - num_logits :])
    assert_near(runner.forward(spans), torch.cat(expected))


def test_a_prefix_in_shared_blocks_serves_every_sequence(pair: Pair) -> None:
    runner = pair.runner()
    shared, tails = tokens_of(24), [tokens_of(9, 1), tokens_of(1, 2), tokens_of(30, 3)]
    prefix = shuffled(6)
    own = [block for block in range(64) if block not in prefix]
    spans = [
        Span(tail, 24, [*prefix, *own[10 * i : 10 * i + 10]], 1) for i, tail in enumerate(tails)
    ]
    expected = torch.stack([pair.expected(shared + tail)[-1] for tail in tails])
    # The blocks are filled by the same step, then found filled.
    together = runner.forward([spans[0], Span(shared, 0, prefix, 0), *spans[1:]])
    assert_near(together, expected)
    assert_near(runner.forward(spans), expected)


def test_a_copied_part_of_a_block_serves_as_well(pair: Pair) -> None:
    runner = pair.runner(block_size=16)
    tokens = tokens_of(22)
    runner.forward([Span(tokens, 0, [3, 8], 0)])
    runner.copy_rows([(8, 5, 4)])
    other = tokens[:20] + tokens_of(8, 9)
    assert_near(runner.forward([Span(other[20:], 20, [3, 5], 8)]), pair.expected(other)[20:])


def test_a_step_without_logits_or_without_spans_yields_none(pair: Pair) -> None:
    runner = pair.runner()
    assert runner.forward([]).shape == (0, 256)
    assert runner.forward([Span(tokens_of(5), 0, [0, 1], 0)]).shape == (0, 256)


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Span([], 0, [0], 0), "at least one token"),
        (Span([1], 0, [0], 2), "num_logits"),
        (Span([1], 256, list(range(65)), 1), "context of 256"),
        (Span([1] * 5, 0, [0], 1), "needs 2 blocks"),
        (Span([256], 0, [0], 1), "outside 0 to 255"),
        (Span([-1], 0, [0], 1), "outside 0 to 255"),
    ],
)
def test_a_span_that_does_not_fit_is_refused(pair: Pair, span: Span, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pair.runner().forward([span])


def test_bf16_logits_stay_close_to_fp32(tmp_path: Any) -> None:
    write_tiny_model(tmp_path, tiny_config("gemma2"))
    logits = []
    for dtype in (torch.float32, torch.bfloat16):
        model = load_transformers_model(ModelFolder(tmp_path, "tiny"), dtype)
        runner = TransformersRunner(model, 16)
        assert runner.memory.layers[0].dtype == dtype
        runner.forward([Span(tokens_of(30), 0, [4, 2, 9], 0)])
        logits.append(runner.forward([Span(tokens_of(40)[30:], 30, [4, 2, 9], 10)]))
    assert logits[1].dtype == torch.float32
    assert (logits[0] - logits[1]).abs().max() < 0.1 * logits[0].abs().max()
