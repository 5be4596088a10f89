"""Attention over blocks equals attention over plain tensors."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from radix_engine.attention.grouping import group_decodes
from radix_engine.attention.interface import AttentionSpan
from radix_engine.attention.torch_paged import TorchAttention
from radix_engine.memory.kv_memory import KVMemory

HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8


def dense(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Attention written out in float64, one head after another; the last query sees all keys."""
    count, context = queries.shape[0], keys.shape[0]
    result = torch.empty(count, HEADS, HEAD_DIM, dtype=torch.float64)
    for head in range(HEADS):
        kv = head // (HEADS // KV_HEADS)
        scores = queries[:, head].double() @ keys[:, kv].double().T / HEAD_DIM**0.5
        for i in range(count):
            scores[i, context - count + i + 1 :] = float("-inf")
        result[:, head] = scores.softmax(dim=-1) @ values[:, kv].double()
    return result


@pytest.mark.parametrize("seed", range(6))
def test_attention_over_blocks_equals_dense_attention(seed: int) -> None:
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

    result = TorchAttention(memory).plan(spans).attend(1, queries, fresh[0], fresh[1])

    first = 0
    for span, context in zip(spans, contexts, strict=True):
        rows = slice(first, first + span.length)
        expected = dense(queries[rows], context[0], context[1])
        torch.testing.assert_close(result[rows].double(), expected, rtol=0, atol=1e-5)
        first += span.length
    assert not memory.layers[0].any()


def test_a_block_table_may_be_longer_than_needed() -> None:
    memory = KVMemory(1, 4, 4, KV_HEADS, HEAD_DIM, torch.float32)
    keys = torch.randn(3, KV_HEADS, HEAD_DIM)
    TorchAttention(memory).plan([AttentionSpan(0, 3, [2, 1, 0])]).write(0, keys, keys)
    assert torch.equal(memory.layers[0][2, 0, :3], keys)
    assert not memory.layers[0][[0, 1, 3]].any()


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
