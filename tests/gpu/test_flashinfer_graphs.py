"""What a recorded step reads is what the reference in torch reads.

The package itself needs a GPU; here a fake with its semantics stands in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from radix_engine.attention.interface import AttentionSpan
from tests.gpu.attention_pair import (
    BLOCK,
    DECODES,
    HEAD_DIM,
    KV_HEADS,
    MIXED,
    Pair,
    sharing_spans,
    spans_of,
)
from tests.gpu.binding import bound, real_signatures
from tests.gpu.fake_flashinfer import make_fake
from tests.gpu.graph_attention import WRAPPER, graphs_over
from tests.gpu.recording import Recorder


@pytest.mark.parametrize("window", [None, 1, 17, 99, 1000])
@pytest.mark.parametrize("group", [1, 3, 4, 7])
def test_decodes_equal_the_reference(group: int, window: int | None) -> None:
    pair = Pair(spans_of(DECODES), group=group)
    tensors = pair.inputs()
    plan = graphs_over(pair, [window]).attention(4).plan(pair.spans)
    mine = plan.attend(0, *tensors, window=window)
    reference = pair.reference.plan(pair.spans).attend(0, *tensors, window=window)
    torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5)
    pair.check_memory()


def test_layers_with_other_windows_share_a_step() -> None:
    pair = Pair(sharing_spans(DECODES[:3], 2), layers=3)
    attention = graphs_over(pair, [None, 9, None]).attention(3)
    plan, reference = attention.plan(pair.spans), pair.reference.plan(pair.spans)
    for layer, window in enumerate((None, 9, None)):
        tensors = pair.inputs()
        torch.testing.assert_close(
            plan.attend(layer, *tensors, window=window),
            reference.attend(layer, *tensors, window=window),
            rtol=1e-4,
            atol=1e-5,
        )
    pair.check_memory()
    assert pair.fake.calls[f"{WRAPPER}.__init__"] == 2
    assert pair.fake.calls[f"{WRAPPER}.plan"] == 2


@pytest.mark.parametrize("sizes", [[(5, 1)], [(20, 1), (127, 1), (0, 1), (16, 1)]])
def test_what_was_recorded_reads_and_writes_what_is_planned_later(
    sizes: list[tuple[int, int]],
) -> None:
    """The recording is of the dummy block alone, and of other queries, keys and values."""
    pair = Pair(spans_of(sizes))
    dummy = pair.memory.num_blocks - 1
    graphs = graphs_over(pair, [None])
    attention = graphs.attention(len(sizes))
    tensors = [torch.zeros_like(tensor) for tensor in pair.inputs()]
    plan = attention.plan([AttentionSpan(0, 1, [dummy])] * len(sizes))
    graph, output = Recorder().record(lambda: plan.attend(0, *tensors))
    pair.memory.layers[0][dummy] = float("nan")
    for tensor, given in zip(tensors, pair.inputs(), strict=True):
        tensor.copy_(given)
    attention.plan(pair.spans)
    graph.replay()
    reference = pair.reference.plan(pair.spans).attend(0, *tensors)
    torch.testing.assert_close(output, reference, rtol=1e-4, atol=1e-5)
    pair.check_memory()


def test_the_launches_are_the_plans_of_all_windows() -> None:
    pair = Pair(spans_of(DECODES))
    attention = graphs_over(pair, [None, 9]).attention(4)
    attention.plan(pair.spans)
    first = attention.plan_info
    attention.plan(spans_of([(50, 1), (3, 1), (7, 1), (127, 1)]))
    # The fake's: requests, query heads, KV heads, head_dim, and nothing of the lengths.
    assert first == attention.plan_info == (4, 4, 2, 64, 0) * 2
    assert all(type(number) is int for number in first)


def test_the_real_package_takes_every_call() -> None:
    pair = Pair(spans_of(DECODES))
    flashinfer = bound(pair.fake, real_signatures())
    plan = graphs_over(pair, [None, 9], flashinfer).attention(4).plan(pair.spans)
    for window in (None, 9):
        plan.attend(0, *pair.inputs(), window=window)
    assert flashinfer.bound[f"{WRAPPER}.__init__"] == 2
    assert flashinfer.bound[f"{WRAPPER}.plan"] == 2
    assert flashinfer.bound[f"{WRAPPER}.run"] == 2
    assert flashinfer.bound["append_paged_kv_cache"] == 2


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (spans_of(DECODES[:3]), "of 4 spans of one token, not of 3 with 3"),
        (spans_of(MIXED[:4]), "of 4 spans of one token, not of 4 with 30"),
        ([AttentionSpan(16, 1, [0])] * 4, "needs 2 blocks"),
        ([AttentionSpan(0, 1, [150])] * 4, "outside 0 to 149"),
        ([AttentionSpan(128, 1, list(range(9)))] * 4, "36 blocks is more than .* room for, 32"),
    ],
)
def test_a_step_that_does_not_fit_is_refused_before_anything_is_written(
    spans: list[AttentionSpan], message: str
) -> None:
    pair = Pair(spans_of(DECODES))
    graphs = graphs_over(pair, [None])
    attention = graphs.attention(4)
    attention.plan(pair.spans)
    before = graphs.placed.flat.clone()
    with pytest.raises(ValueError, match=message):
        attention.plan(spans)
    assert torch.equal(graphs.placed.flat, before)
    assert pair.fake.calls[f"{WRAPPER}.plan"] == 1


@pytest.mark.parametrize("variant", [{"window": 9}, {"scale": 0.3}, {"softcap": 2.0}])
def test_scores_that_were_not_planned_are_refused(variant: dict[str, Any]) -> None:
    pair = Pair(spans_of(DECODES))
    plan = graphs_over(pair, [None, 17]).attention(4).plan(pair.spans)
    with pytest.raises(ValueError, match=r"windows \(None, 17\) and the usual scale"):
        plan.attend(0, *pair.inputs(), **variant)


def test_tensors_of_another_form_are_refused() -> None:
    pair = Pair(spans_of(DECODES))
    plan = graphs_over(pair, [None]).attention(4).plan(pair.spans)
    queries, keys, values = pair.inputs()
    strided = torch.zeros(4, KV_HEADS, 2 * HEAD_DIM)[..., ::2]
    for tensors, name in (
        ((queries[:3], keys, values), "queries"),
        ((keys, keys, values), "queries"),
        ((queries, keys.half(), values), "keys"),
        ((queries, keys, strided), "values"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be"):
            plan.attend(0, *tensors)
    assert pair.fake.calls[f"{WRAPPER}.run"] == 0


def test_half_precision_stays_half_precision() -> None:
    pair = Pair(spans_of(DECODES), dtype=torch.bfloat16)
    tensors = pair.inputs()
    mine = graphs_over(pair, [None]).attention(4).plan(pair.spans).attend(0, *tensors)
    reference = pair.reference.plan(pair.spans).attend(0, *tensors)
    assert mine.dtype == torch.bfloat16
    torch.testing.assert_close(mine, reference, rtol=2e-2, atol=2e-2)


def test_an_index_array_of_the_real_append_may_be_longer_than_what_is_used() -> None:
    """The fake takes one as the real kernel does, and none that is too short."""
    fake, cache = make_fake(), torch.zeros(3, 2, BLOCK, KV_HEADS, HEAD_DIM)
    ones = torch.ones(1, KV_HEADS, HEAD_DIM)

    def append(indices: list[int]) -> None:
        arrays = [np.array(a, np.int32) for a in ([0], [16], indices, [0, 2], [1])]
        rows, positions, ids, indptr, last = map(torch.from_numpy, arrays)
        fake.append_paged_kv_cache(ones, ones, rows, positions, cache, ids, indptr, last)

    append([2, 1, 99, -5])
    assert (cache[1, :, 0] == 1).all()
    assert cache.sum() == 2 * KV_HEADS * HEAD_DIM
    with pytest.raises(ValueError, match="ends at 2 instead of 1"):
        append([2])
