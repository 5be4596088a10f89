"""Attention through FlashInfer's wrappers equals the reference in torch.

The package itself needs a GPU; here a fake with its semantics stands in.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.interface import AttentionSpan
from radix_engine.memory.kv_memory import KVMemory
from tests.gpu.attention_pair import (
    BLOCK,
    CASCADE,
    DECODE,
    DECODES,
    HEAD_DIM,
    KV_HEADS,
    MIXED,
    PREFILL,
    Pair,
    sharing_spans,
    spans_of,
)
from tests.gpu.fake_flashinfer import make_fake

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {"scale": 0.3},
    "window of 1": {"window": 1},
    "window of 17": {"window": 17},
    "window longer than any context": {"window": 1000},
    "capped": {"softcap": 1.5},
    "all three": {"scale": 0.2, "window": 9, "softcap": 2.0},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("group", [1, 3, 4, 7])
def test_prefills_and_decodes_in_one_step_equal_the_reference(group: int, variant: str) -> None:
    pair = Pair(spans_of(MIXED), group=group)
    pair.check(**VARIANTS[variant])
    assert pair.fake.calls[f"{PREFILL}.run"] == 1


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("group", [1, 3, 4, 7])
def test_decodes_equal_the_reference(group: int, variant: str) -> None:
    pair = Pair(spans_of(DECODES), group=group)
    pair.check(**VARIANTS[variant])
    assert pair.fake.calls[f"{DECODE}.run"] == 1
    assert pair.fake.calls[f"{PREFILL}.run"] == 0


def test_a_window_of_all_but_one_token_hides_that_one() -> None:
    for sizes, window in ((DECODES, 99), (MIXED, 95)):
        Pair(spans_of(sizes)).check(window=window)


@pytest.mark.parametrize("sizes", [DECODES, MIXED], ids=["decodes", "mixed"])
@pytest.mark.parametrize("group", [1, 3, 4, 7])
@pytest.mark.parametrize("variant", ["plain", "scaled", "window longer than any context"])
def test_a_cascade_equals_the_reference(
    sizes: list[tuple[int, int]], group: int, variant: str
) -> None:
    pair = Pair(sharing_spans(sizes, 16), group=group)
    pair.check(**VARIANTS[variant])
    assert pair.fake.calls[f"{CASCADE}.run"] == 1


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=6),
    st.integers(0, 20),
    st.one_of(st.none(), st.integers(1, 100)),
)
def test_any_step_equals_the_reference(
    sizes: list[tuple[int, int]], blocks: int, window: int | None
) -> None:
    Pair(sharing_spans(sizes, blocks)).check(window=window)


@pytest.mark.parametrize("variant", [{"window": 100}, {"softcap": 3.0}])
@pytest.mark.parametrize("sizes", [DECODES, MIXED], ids=["decodes", "mixed"])
def test_no_cascade_under_a_window_or_a_cap(
    sizes: list[tuple[int, int]], variant: dict[str, Any]
) -> None:
    pair = Pair(sharing_spans(sizes, 16))
    pair.check(**variant)
    assert pair.fake.calls[f"{CASCADE}.plan"] == 0


def test_no_cascade_below_256_shared_tokens_nor_for_one_span() -> None:
    for spans in (sharing_spans(DECODES, 15), sharing_spans(DECODES[:1], 16)):
        pair = Pair(spans)
        pair.check()
        assert pair.fake.calls[f"{DECODE}.run"] == 1


def test_no_cascade_where_the_merge_has_too_few_threads() -> None:
    """float32 takes a thread for 4 values: 16 a head of 64, 1,024 for 64 heads."""
    for group, cascades in ((32, 1), (33, 0)):
        pair = Pair(sharing_spans(DECODES[:2], 16), group=group)
        pair.check()
        assert pair.fake.calls[f"{CASCADE}.run"] == cascades


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_half_precision(dtype: torch.dtype) -> None:
    for spans in (spans_of(MIXED), spans_of(DECODES), sharing_spans(MIXED, 16)):
        pair = Pair(spans, dtype=dtype)
        given_tensors = pair.inputs()
        mine = pair.attention.plan(spans).attend(0, *given_tensors)
        reference = pair.reference.plan(spans).attend(0, *given_tensors)
        assert mine.dtype == dtype
        torch.testing.assert_close(mine, reference, rtol=2e-2, atol=2e-2)
        pair.check_memory()


def test_a_span_reads_what_another_writes_in_the_same_step() -> None:
    table = [4, 9, 2]
    spans = [AttentionSpan(0, 32, table[:2]), AttentionSpan(32, 3, table)]
    tokens = torch.Generator().manual_seed(5)
    queries = torch.randn(35, 4, HEAD_DIM, generator=tokens)
    keys, values = torch.randn(2, 35, KV_HEADS, HEAD_DIM, generator=tokens)
    together = FlashInferAttention(one_layer(), 4, make_fake()).plan(spans)
    alone = FlashInferAttention(one_layer(), 4, make_fake()).plan([AttentionSpan(0, 35, table)])
    torch.testing.assert_close(
        together.attend(0, queries, keys, values), alone.attend(0, queries, keys, values)
    )


def one_layer() -> KVMemory:
    return KVMemory(1, 10, BLOCK, KV_HEADS, HEAD_DIM, torch.float32)
