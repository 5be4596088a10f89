"""A step's result depends on the tokens alone: not on chunks, blocks or batch neighbours."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.model.batch import Span
from radix_engine.model.runner import ModelRunner
from tests.model.helpers import logits_of, random_tokens, tiny_runner

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return tiny_runner(tmp_path_factory.mktemp("runner"), num_blocks=128)


def shuffled_blocks(count: int, seed: int, below: int = 128) -> list[int]:
    return random.Random(seed).sample(range(below), count)


def assert_near(left: torch.Tensor, right: torch.Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=TOLERANCE)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=6), st.integers(0, 1000))
def test_a_prompt_in_chunks_yields_what_it_yields_whole(
    runner: ModelRunner, chunks: list[int], seed: int
) -> None:
    tokens = random_tokens(sum(chunks), seed)
    blocks = shuffled_blocks(60, seed)
    whole = logits_of(runner, tokens, blocks[:30])
    start = 0
    for length in chunks:
        table = blocks[30 : 30 + -(-(start + length) // 16)]
        logits = logits_of(runner, tokens[start : start + length], table, start)
        start += length
    assert_near(logits, whole)


def test_a_long_chunk_behind_cached_tokens_yields_what_the_whole_prompt_yields(
    runner: ModelRunner,
) -> None:
    tokens = random_tokens(640)
    blocks = shuffled_blocks(80, 3)
    whole = logits_of(runner, tokens, blocks[:40])
    logits_of(runner, tokens[:30], blocks[40:])
    assert_near(logits_of(runner, tokens[30:], blocks[40:], 30), whole)


@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.one_of(st.just(1), st.integers(1, 40)), st.booleans()),
        min_size=1,
        max_size=10,
    ),
    st.integers(0, 1000),
)
def test_a_span_in_a_batch_yields_what_it_yields_alone(
    runner: ModelRunner, shapes: list[tuple[int, int, bool]], seed: int
) -> None:
    blocks = shuffled_blocks(128, seed)
    spans, alone = [], []
    for i, (start, length, wants) in enumerate(shapes):
        tokens = random_tokens(start + length, seed + i)
        table = blocks[9 * i : 9 * i + 9]
        logits = logits_of(runner, tokens, table)
        if wants:
            alone.append(logits)
        runner.memory.layers[0][table] = 0.5  # to be overwritten, or the batch differs
        runner.memory.layers[1][table] = 0.5
        if start:
            logits_of(runner, tokens[:start], table)
        spans.append(Span(tokens[start:], start, table, int(wants)))
    logits = runner.forward(spans)
    assert logits.shape == (len(alone), 512)
    if alone:
        assert_near(logits, torch.stack(alone))


def test_many_decodes_of_very_different_lengths_agree_with_each_alone(
    runner: ModelRunner,
) -> None:
    spans = []
    base = 0
    for i, length in enumerate([1, 2, 15, 16, 17, 40, 41, 300, 600]):
        table = list(range(base, base + -(-length // 16)))
        base += len(table)
        tokens = random_tokens(length, i)
        if length > 1:
            runner.forward([Span(tokens[:-1], 0, table, 0)])
        spans.append(Span(tokens[-1:], length - 1, table, 1))
    together = runner.forward(spans)
    assert_near(together, torch.cat([runner.forward([span]) for span in spans]))


def test_a_span_reads_blocks_that_another_span_of_the_same_step_fills(
    runner: ModelRunner,
) -> None:
    shared = random_tokens(32, 1)
    tails = [random_tokens(7, 2), random_tokens(1, 3)]
    expected = [logits_of(runner, shared + tail, [0, 1, 2]) for tail in tails]
    for layer in runner.memory.layers:
        layer.fill_(7.0)
    spans = [
        Span(tails[0], 32, [50, 40, 60], 1),
        Span(shared, 0, [50, 40], 0),
        Span(tails[1], 32, [50, 40, 61], 1),
    ]
    assert_near(runner.forward(spans), torch.stack(expected))


@pytest.mark.parametrize("block_size", [1, 4, 16, 32])
def test_the_block_size_does_not_change_the_logits(
    runner: ModelRunner, tmp_path: Path, block_size: int
) -> None:
    tokens = random_tokens(50)
    other = tiny_runner(tmp_path, num_blocks=64, block_size=block_size)
    table = shuffled_blocks(50, 0, below=64)
    logits_of(other, tokens[:21], table)
    assert_near(logits_of(other, tokens[21:], table, 21), logits_of(runner, tokens, [9, 8, 7, 6]))


def test_what_unused_blocks_and_rows_hold_never_reaches_the_logits(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path)
    sequences = [random_tokens(length, length) for length in (3, 20, 33, 50)]
    tables = [[0], [1, 2], [3, 4, 5], [6, 7, 8, 9]]
    expected = torch.stack(
        [logits_of(runner, s, t) for s, t in zip(sequences, tables, strict=True)]
    )
    for layer in runner.memory.layers:
        layer.fill_(float("nan"))
    for tokens, table in zip(sequences, tables, strict=True):
        runner.forward([Span(tokens[:-1], 0, table, 0)])
    decodes = [
        Span(tokens[-1:], len(tokens) - 1, table, 1)
        for tokens, table in zip(sequences, tables, strict=True)
    ]
    assert_near(runner.forward(decodes), expected)


def test_logits_come_in_span_order_and_only_where_wanted(runner: ModelRunner) -> None:
    tokens = random_tokens(12)
    spans = [
        Span(tokens[:5], 0, [0], 0),
        Span(tokens[:9], 0, [1], 1),
        Span(tokens[:1], 0, [2], 1),
        Span(tokens[:12], 0, [3], 1),
    ]
    logits = runner.forward(spans)
    expected = [logits_of(runner, tokens[:n], [9]) for n in (9, 1, 12)]
    assert logits.dtype == torch.float32
    assert_near(logits, torch.stack(expected))


def test_a_span_may_want_the_logits_after_several_of_its_last_tokens(runner: ModelRunner) -> None:
    tokens = random_tokens(12)
    spans = [
        Span(tokens[:4], 0, [0], 4),
        Span(tokens[:6], 0, [1], 0),
        Span(tokens[:12], 0, [2], 3),
        Span(tokens[:5], 0, [3], 1),
    ]
    logits = runner.forward(spans)
    expected = [logits_of(runner, tokens[:n], [9]) for n in (1, 2, 3, 4, 10, 11, 12, 5)]
    assert_near(logits, torch.stack(expected))


def test_a_step_that_wants_no_logits_still_writes_every_layer(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path)
    tokens = random_tokens(20)
    assert runner.forward([Span(tokens, 0, [1, 2], 0)]).shape == (0, 512)
    written = [layer[[1, 2]].clone() for layer in runner.memory.layers]
    runner.forward([Span(tokens, 0, [1, 2], 1)])
    for before, layer in zip(written, runner.memory.layers, strict=True):
        assert torch.equal(before, layer[[1, 2]])
    assert runner.forward([]).shape == (0, 512)


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Span([], 0, [0], 1), "at least one token"),
        (Span([1], 0, [0], 2), "num_logits must be from 0 to the span's 1 tokens, not 2"),
        (Span([1], 0, [0], -1), "num_logits must be"),
        (Span([1], -1, [0], 1), "positions"),
        (Span([1] * 17, 0, [0], 1), "needs 2 blocks"),
        (Span([1], 1024, list(range(65)), 1), "context of 1024"),
        (Span([1], 0, [128], 1), "outside 0 to 127"),
        (Span([1], 0, [-1], 1), "outside 0 to 127"),
        (Span([512], 0, [0], 1), "outside 0 to 511"),
        (Span([-1], 0, [0], 1), "outside 0 to 511"),
    ],
)
def test_a_span_that_does_not_fit_is_refused(runner: ModelRunner, span: Span, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runner.forward([span])
