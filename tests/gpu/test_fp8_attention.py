"""Attention over K and V in fp8 is attention over the same numbers, rounded.

By the fake flashinfer, which takes a cache in fp8 only where it is told, and nothing else into it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.flashinfer_graphs import FlashInferGraphs
from radix_engine.attention.flashinfer_wrappers import Heads
from radix_engine.memory.fp8 import FP8, rounded
from radix_engine.memory.kv_memory import KVMemory
from tests.gpu.attention_pair import (
    BLOCK,
    CASCADE,
    DECODE,
    DECODES,
    HEAD_DIM,
    KV_HEADS,
    MIXED,
    NUM_BLOCKS,
    PREFILL,
    Pair,
    sharing_spans,
    spans_of,
)
from tests.gpu.binding import CountedFake, real_signatures
from tests.gpu.fake_checks import Rejected
from tests.gpu.fake_flashinfer import make_fake
from tests.gpu.fake_inputs import cache, ints, queries, workspace
from tests.gpu.fp8_reference import as_fp8
from tests.gpu.recording import Recorder

STEPS = {
    PREFILL: spans_of(MIXED),
    DECODE: spans_of(DECODES),
    CASCADE: sharing_spans(MIXED, 16),
}


def test_the_references_rounding_is_that_of_the_dtype() -> None:
    every = torch.arange(-32768, 32768, dtype=torch.int16).view(torch.bfloat16)
    finite = every[every.isfinite()]
    assert torch.equal(as_fp8(finite), finite.clamp(-448, 448).to(FP8).to(torch.bfloat16))
    numbers = torch.arange(256, dtype=torch.uint8).view(FP8).float()
    numbers = numbers[~numbers.isnan()]
    assert torch.equal(as_fp8(numbers), numbers)


@pytest.mark.parametrize("variant", [{}, {"window": 17}, {"scale": 0.3, "softcap": 1.5}])
@pytest.mark.parametrize("group", [1, 3, 4, 7])
@pytest.mark.parametrize("kind", STEPS)
def test_a_step_equals_the_reference(kind: str, group: int, variant: dict[str, Any]) -> None:
    pair = Pair(STEPS[kind], group=group, fp8=True)
    pair.check(**variant)
    if not variant:
        assert pair.fake.calls[f"{kind}.run"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", STEPS)
def test_queries_and_results_stay_in_16_bits(kind: str, dtype: torch.dtype) -> None:
    pair = Pair(STEPS[kind], dtype=dtype, fp8=True)
    tensors = pair.inputs()
    mine = pair.attention.plan(pair.spans).attend(0, *tensors)
    reference = pair.reference.plan(pair.spans).attend(0, *tensors)
    assert mine.dtype == dtype
    torch.testing.assert_close(mine, reference, rtol=2e-2, atol=2e-2)
    pair.check_memory()


def graphs_over(pair: Pair, window: int | None) -> FlashInferGraphs:
    """For steps of up to 4 sequences of up to 128 tokens."""
    return FlashInferGraphs(
        CountedFake(pair.fake, real_signatures()),
        pair.memory,
        Heads(pair.group * KV_HEADS, KV_HEADS, HEAD_DIM, BLOCK, pair.dtype, fp8=True),
        [window],
        largest=4,
        context_length=128,
        workspace=workspace(),
    )


@pytest.mark.parametrize("window", [None, 17])
@pytest.mark.parametrize("group", [1, 3, 4, 7])
def test_a_graph_of_decodes_equals_the_reference(group: int, window: int | None) -> None:
    pair = Pair(spans_of(DECODES), group=group, fp8=True)
    attention = graphs_over(pair, window).attention(4)
    tensors = pair.inputs()
    # Recorded over other sequences, whose numbers the replay must not see.
    plan = attention.plan(spans_of([(3, 1)] * 4))
    given = [tensor.clone().fill_(0.0) for tensor in tensors]
    before = [layer.clone() for layer in pair.memory.layers]
    graph, attended = Recorder().record(lambda: plan.attend(0, *given, window=window))
    for layer, was in zip(pair.memory.layers, before, strict=True):
        layer.copy_(was)
    attention.plan(pair.spans)
    for target, tensor in zip(given, tensors, strict=True):
        target.copy_(tensor)
    graph.replay()
    reference = pair.reference.plan(pair.spans).attend(0, *tensors, window=window)
    torch.testing.assert_close(attended, reference, rtol=1e-4, atol=1e-5)
    pair.check_memory()


def test_k_and_v_beyond_what_fp8_can_be_are_its_largest_numbers() -> None:
    pair = Pair(spans_of(DECODES), fp8=True)
    _, keys, values = pair.inputs()
    keys, values = keys * 1000, values * 1000
    pair.attention.plan(pair.spans).write(0, keys, values)
    pair.reference.plan(pair.spans).write(0, keys, values)
    pair.check_memory()
    row = pair.memory.layers[0][pair.spans[0].block_table[0], :, 0].float()
    assert row.abs().max() == 448
    assert not row.isnan().any()


def test_merging_depends_on_the_results_and_not_on_k_and_v() -> None:
    # 128 heads of 64 in 16 bits are 1,024 threads of 16 bytes; in 8 bits they would be half.
    for heads, mergeable in ((128, True), (129, False)):
        assert Heads(heads, 1, 64, BLOCK, torch.bfloat16, fp8=True).mergeable == mergeable


@pytest.mark.parametrize(
    ("kept", "dtype", "message"),
    [
        (FP8, None, "takes bfloat16 and float16, not torch.float8_e4m3fn: use --dtype bf16"),
        (torch.float16, torch.bfloat16, r"not in torch\.float16: use --kv-dtype auto or fp8"),
        (torch.float8_e5m2, torch.bfloat16, r"not in torch\.float8_e5m2: use --kv-dtype auto or"),
    ],
)
def test_k_and_v_in_any_other_dtype_are_refused(
    kept: torch.dtype, dtype: torch.dtype | None, message: str
) -> None:
    memory = KVMemory(1, NUM_BLOCKS, BLOCK, KV_HEADS, HEAD_DIM, kept)
    with pytest.raises(ValueError, match=message):
        FlashInferAttention(memory, 4, make_fake(), dtype=dtype)


def test_the_fake_takes_nothing_into_fp8_but_fp8() -> None:
    """The real append copies bytes, whatever they are."""
    blocks = cache(dtype=FP8)
    rows = queries(1, heads=KV_HEADS)
    where = (ints(0), ints(0), blocks, ints(2), ints(0, 1), ints(1))
    with pytest.raises(Rejected, match=r"append_key must be torch\.float8_e4m3fn"):
        make_fake().append_paged_kv_cache(rows, rows, *where)
    make_fake().append_paged_kv_cache(*rounded(rows + 3.3, rows - 3.3), *where)
    assert blocks[2, :, 0, 0, 0].float().tolist() == [3.25, -3.25]


@pytest.mark.parametrize("wrapper", [DECODE, PREFILL])
def test_the_fake_reads_fp8_times_the_scales_it_is_given(wrapper: str) -> None:
    drawn = torch.randn(6, 2, 4, KV_HEADS, 64, generator=torch.Generator().manual_seed(7))
    asked = torch.randn(2, 4, 64, generator=torch.Generator().manual_seed(8))
    pages = (ints(0, 2, 3), ints(4, 1, 3), ints(3, 2), 4, KV_HEADS, 64, 4)
    one_query_each = (ints(0, 1, 2),) if wrapper == PREFILL else ()

    def run(blocks: torch.Tensor, **scales: float) -> torch.Tensor:
        made = getattr(make_fake(), wrapper)(workspace(), backend="fa2")
        types = {"q_data_type": torch.float32, "kv_data_type": blocks.dtype}
        made.plan(*one_query_each, *pages, **types)
        result: torch.Tensor = made.run(asked, blocks, **scales)
        return result

    scaled = as_fp8(drawn)
    scaled[:, 0] *= 0.5
    scaled[:, 1] *= 3.0
    found = run(drawn.to(FP8), k_scale=0.5, v_scale=3.0)
    torch.testing.assert_close(found, run(scaled), rtol=1e-4, atol=1e-5)
