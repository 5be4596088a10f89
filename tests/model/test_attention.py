"""Attention over blocks equals attention over plain tensors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.attention.grouping import group_decodes
from radix_engine.attention.interface import AttentionSpan
from radix_engine.attention.scores import attend_dense
from radix_engine.attention.step_view import view_step
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.memory.kv_memory import KVMemory

HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {"scale": 1.3},
    "window of 1": {"window": 1},
    "window of 2": {"window": 2},
    "window of 7": {"window": 7},
    "window longer than any context": {"window": 1000},
    "capped": {"softcap": 1.5},
    "all three": {"scale": 0.7, "window": 9, "softcap": 2.0},
}


def dense(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float = HEAD_DIM**-0.5,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attention written out in float64, one head after another; the last query sees all keys."""
    count, context = queries.shape[0], keys.shape[0]
    result = torch.empty(count, HEADS, HEAD_DIM, dtype=torch.float64)
    for head in range(HEADS):
        kv = head // (HEADS // KV_HEADS)
        scores = queries[:, head].double() @ keys[:, kv].double().T * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        for i in range(count):
            position = context - count + i
            scores[i, position + 1 :] = float("-inf")
            if window is not None:
                scores[i, : max(0, position + 1 - window)] = float("-inf")
        result[:, head] = scores.softmax(dim=-1) @ values[:, kv].double()
    return result


def one_span(
    context: torch.Tensor, length: int, queries: torch.Tensor, unseen: int = 0, **variant: Any
) -> torch.Tensor:
    """The last ``length`` positions of a context in blocks of 4, the rest cached before; the first
    ``unseen`` positions hold NaN."""
    start = context.shape[1] - length
    memory = KVMemory(1, 500, 4, KV_HEADS, HEAD_DIM, torch.float32)
    memory.layers[0].fill_(float("nan"))
    table = random.Random(1).sample(range(500), -(-context.shape[1] // 4))
    for position in range(unseen, start):
        memory.layers[0][table[position // 4], :, position % 4] = context[:, position]
    plan = TorchAttention(memory).plan([AttentionSpan(start, length, table)])
    return plan.attend(0, queries, context[0, start:], context[1, start:], **variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(4))
def test_attention_over_blocks_equals_dense_attention(seed: int, variant: str) -> None:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    memory = KVMemory(2, 200, 4, KV_HEADS, HEAD_DIM, torch.float32)
    memory.layers[1].fill_(float("nan"))
    free = chance.sample(range(200), 200)
    spans, contexts = [], []
    for _ in range(8):
        start = chance.randrange(60)
        length = chance.choice([1, 1, 2, chance.randrange(1, 30)])
        table = [free.pop() for _ in range(-(-(start + length) // 4))]
        spans.append(AttentionSpan(start, length, table))
        contexts.append(torch.randn(2, start + length, KV_HEADS, HEAD_DIM))
        for position in range(start):
            block, offset = table[position // 4], position % 4
            memory.layers[1][block, :, offset] = contexts[-1][:, position]
    fresh = torch.cat([c[:, s.start :] for c, s in zip(contexts, spans, strict=True)], dim=1)
    queries = torch.randn(fresh.shape[1], HEADS, HEAD_DIM)

    plan = TorchAttention(memory).plan(spans)
    result = plan.attend(1, queries, fresh[0], fresh[1], **VARIANTS[variant])

    first = 0
    for span, context in zip(spans, contexts, strict=True):
        rows = slice(first, first + span.length)
        expected = dense(queries[rows], context[0], context[1], **VARIANTS[variant])
        torch.testing.assert_close(result[rows].double(), expected, rtol=0, atol=1e-5)
        first += span.length
    assert not memory.layers[0].any()


@pytest.mark.parametrize("start", [0, 45])
@pytest.mark.parametrize("variant", [*VARIANTS, "window of 300"])
def test_a_span_of_several_tiles_equals_dense_attention(variant: str, start: int) -> None:
    torch.manual_seed(0)
    context = torch.randn(2, start + 600, KV_HEADS, HEAD_DIM)
    queries = torch.randn(600, HEADS, HEAD_DIM)
    arguments = VARIANTS.get(variant, {"window": 300})
    result = one_span(context, 600, queries, **arguments)
    expected = dense(queries, context[0], context[1], **arguments)
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 30])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_what_lies_before_the_window_of_the_first_query_is_not_read(
    length: int, softcap: float | None
) -> None:
    torch.manual_seed(0)
    context = torch.randn(2, 50 + length, KV_HEADS, HEAD_DIM)
    queries = torch.randn(length, HEADS, HEAD_DIM)
    # The query at 50 sees 39 to 50: what lies before may be anything.
    result = one_span(context, length, queries, unseen=39, window=12, softcap=softcap)
    expected = dense(queries, context[0], context[1], window=12, softcap=softcap)
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=1e-5)
    too_much = one_span(context, length, queries, unseen=40, window=12, softcap=softcap)
    assert too_much[0].isnan().all()


def test_a_tile_reads_no_more_than_its_queries_see() -> None:
    memory = KVMemory(1, 200, 4, KV_HEADS, HEAD_DIM, torch.float32)
    rows = np.arange(700)
    view = view_step([AttentionSpan(0, 700, list(range(175)))], [rows], 50, memory)
    (prefill,) = view.prefills
    # The first query of a tile sees 49 tokens before itself.
    assert [(tile.first, tile.low, tile.high) for tile in prefill.tiles] == [
        (0, 0, 256),
        (256, 207, 512),
        (512, 463, 700),
    ]


def test_a_cap_far_above_all_scores_changes_nothing() -> None:
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 300, HEAD_DIM).unbind()
    for mask in (None, torch.randn(300, 300), torch.randn(2, 1, 300)):
        plain = attend_dense(queries, keys, values, mask=mask)
        capped = attend_dense(queries, keys, values, mask=mask, softcap=1e4)
        torch.testing.assert_close(capped, plain, rtol=0, atol=1e-5)
    plain = attend_dense(queries, keys, values, causal=True)
    capped = attend_dense(queries, keys, values, causal=True, softcap=1e4)
    torch.testing.assert_close(capped, plain, rtol=0, atol=1e-5)


def test_layers_of_one_step_may_have_different_windows() -> None:
    torch.manual_seed(0)
    memory = KVMemory(1, 20, 4, KV_HEADS, HEAD_DIM, torch.float32)
    context = torch.randn(2, 30, KV_HEADS, HEAD_DIM)
    queries = torch.randn(30, HEADS, HEAD_DIM)
    plan = TorchAttention(memory).plan([AttentionSpan(0, 30, list(range(8)))])
    for window in (4, None, 11, 4):
        result = plan.attend(0, queries, context[0], context[1], window=window)
        expected = dense(queries, context[0], context[1], window=window)
        torch.testing.assert_close(result.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"window": 0}, "window"), ({"softcap": 0.0}, "soft cap"), ({"softcap": -1.0}, "soft cap")],
)
def test_a_window_or_a_cap_that_means_nothing_is_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        one_span(
            torch.ones(2, 4, KV_HEADS, HEAD_DIM), 4, torch.ones(4, HEADS, HEAD_DIM), **arguments
        )


def test_a_block_table_may_be_longer_than_needed() -> None:
    memory = KVMemory(1, 4, 4, KV_HEADS, HEAD_DIM, torch.float32)
    keys = torch.randn(3, KV_HEADS, HEAD_DIM)
    TorchAttention(memory).plan([AttentionSpan(0, 3, [2, 1, 0])]).write(0, keys, keys)
    assert torch.equal(memory.layers[0][2, 0, :3], keys)
    assert not memory.layers[0][[0, 1, 3]].any()


@settings(deadline=None)
@given(st.lists(st.integers(1, 9000), max_size=40))
def test_groups_hold_each_decode_once_and_stay_within_their_bounds(contexts: list[int]) -> None:
    groups = group_decodes(contexts, max_padding=512, max_rows=4096)
    assert sorted(i for group in groups for i in group) == list(range(len(contexts)))
    for group in groups:
        longest = max(contexts[i] for i in group)
        rows = longest * len(group)
        assert len(group) == 1 or rows <= 4096
        assert rows - sum(contexts[i] for i in group) <= 512


def test_short_decodes_of_similar_length_are_computed_together() -> None:
    assert group_decodes([40, 41, 44, 38, 40, 47, 42, 45]) == [[5, 7, 2, 6, 1, 0, 4, 3]]
