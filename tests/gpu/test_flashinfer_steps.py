"""FlashInfer's wrappers are planned once a step, run once a layer, and never given what they would
misread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from radix_engine.attention.flashinfer_attention import FlashInferAttention
from radix_engine.attention.flashinfer_wrappers import PlannedWrapper, place
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
from tests.gpu.binding import bound, real_signatures
from tests.gpu.fake_flashinfer import make_fake


def memory(
    dtype: torch.dtype = torch.float32, kv_heads: int = KV_HEADS, head_dim: int = HEAD_DIM
) -> KVMemory:
    return KVMemory(1, 10, BLOCK, kv_heads, head_dim, dtype)


@pytest.mark.parametrize(
    ("spans", "name"),
    [(spans_of(DECODES), DECODE), (spans_of(MIXED), PREFILL), (sharing_spans(MIXED, 16), CASCADE)],
    ids=["decodes", "mixed", "cascade"],
)
def test_a_step_is_planned_once_and_run_once_a_layer(spans: list[AttentionSpan], name: str) -> None:
    pair = Pair(spans, layers=3)
    for step in (1, 2, 3):
        plan = pair.attention.plan(spans)
        for layer in range(3):
            plan.attend(layer, *pair.inputs())
        assert pair.fake.calls[f"{name}.plan"] == step
        assert pair.fake.calls[f"{name}.run"] == 3 * step
        assert pair.fake.calls["append_paged_kv_cache"] == 3 * step
    assert pair.fake.calls[f"{name}.__init__"] == 2


@pytest.mark.parametrize(
    "spans",
    [spans_of(DECODES), spans_of(MIXED), sharing_spans(MIXED, 16)],
    ids=["decodes", "mixed", "cascade"],
)
def test_the_real_package_takes_every_call(spans: list[AttentionSpan]) -> None:
    pair = Pair(spans)
    flashinfer = bound(pair.fake, real_signatures())
    pair.attention = FlashInferAttention(pair.memory, pair.group * KV_HEADS, flashinfer)
    for variant in ({}, {"window": 9}, {"softcap": 2.0, "scale": 0.2}):
        pair.check(**variant)
    assert flashinfer.bound["append_paged_kv_cache"] == 3
    plans = [count for name, count in flashinfer.bound.items() if name.endswith(".plan")]
    assert sum(plans) == 3


def test_layers_that_score_alike_share_a_plan() -> None:
    spans = spans_of(DECODES)
    pair = Pair(spans, layers=6)
    plan = pair.attention.plan(spans)
    windows = (None, 5, None, 5, 1000, 7)
    for layer, window in enumerate(windows):
        plan.attend(layer, *pair.inputs(), window=window)
    # None and 1000, which hides nothing; 5; 7.
    assert pair.fake.calls[f"{DECODE}.plan"] == 3
    plan.attend(0, *pair.inputs(), scale=HEAD_DIM**-0.5)
    assert pair.fake.calls[f"{DECODE}.plan"] == 3
    plan.attend(0, *pair.inputs(), scale=0.5)
    plan.attend(0, *pair.inputs(), softcap=2.0)
    assert pair.fake.calls[f"{DECODE}.plan"] == 5
    assert pair.fake.calls[f"{DECODE}.run"] == 9


def test_layers_of_several_windows_equal_the_reference() -> None:
    spans = spans_of(MIXED)
    pair = Pair(spans, layers=4)
    mine, reference = pair.attention.plan(spans), pair.reference.plan(spans)
    for layer, window in enumerate((None, 9, None, 9)):
        given_tensors = pair.inputs()
        torch.testing.assert_close(
            mine.attend(layer, *given_tensors, window=window),
            reference.attend(layer, *given_tensors, window=window),
            rtol=1e-4,
            atol=1e-5,
        )


def test_a_step_can_be_planned_while_the_one_before_runs() -> None:
    """Two decodes, one step apart: the second step is planned between the layers of the first."""
    now, then = spans_of([(17, 1), (40, 1)]), spans_of([(18, 1), (41, 1)])
    pair = Pair(now, layers=2)
    mine, reference = pair.attention.plan(now), pair.reference.plan(now)
    tensors = [pair.inputs() for _ in range(4)]
    attended = [mine.attend(0, *tensors[0])]
    ahead = pair.attention.plan(then)
    attended += [ahead.attend(0, *tensors[2]), mine.attend(1, *tensors[1])]
    attended.append(ahead.attend(1, *tensors[3]))
    expected = [reference.attend(layer, *tensors[layer]) for layer in (0, 1)]
    after = pair.reference.plan(then)
    expected += [after.attend(layer, *tensors[2 + layer]) for layer in (0, 1)]
    for got, wanted in zip(attended, [expected[i] for i in (0, 2, 1, 3)], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_plan_is_void_once_two_more_were_made() -> None:
    spans = spans_of(DECODES)
    pair = Pair(spans)
    first, second = pair.attention.plan(spans), pair.attention.plan(spans)
    first.attend(0, *pair.inputs())
    pair.attention.plan(spans)
    with pytest.raises(RuntimeError, match="this plan is void"):
        first.attend(0, *pair.inputs())
    second.attend(0, *pair.inputs())
    assert pair.fake.calls[f"{DECODE}.run"] == 2


def test_a_refused_step_voids_no_plan() -> None:
    spans = spans_of(DECODES)
    pair = Pair(spans)
    first = pair.attention.plan(spans)
    pair.attention.plan(spans)
    with pytest.raises(ValueError, match="blocks outside 0 to 149"):
        pair.attention.plan([AttentionSpan(0, 1, [150])])
    first.attend(0, *pair.inputs())
    assert pair.fake.calls[f"{DECODE}.run"] == 1


def test_write_writes_and_attends_nothing() -> None:
    spans = spans_of(MIXED)
    pair = Pair(spans, layers=2)
    _, keys, values = pair.inputs()
    pair.attention.plan(spans).write(1, keys, values)
    pair.reference.plan(spans).write(1, keys, values)
    pair.check_memory()
    assert torch.equal(pair.memory.layers[1][spans[1].block_table[2], 0, 1], keys[20])
    assert dict(pair.fake.calls) == {"append_paged_kv_cache": 1}


@pytest.mark.parametrize("wrong", ["heads", "tokens", "dtype", "stride"])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["queries", "keys", "values"])
def test_tensors_that_would_be_misread_are_refused(which: int, wrong: str) -> None:
    spans = spans_of(DECODES)
    pair = Pair(spans)
    tensors = list(pair.inputs())
    good = tensors[which]
    tensors[which] = {
        "heads": good[:, :1],
        "tokens": good[:3],
        "dtype": good.double(),
        "stride": torch.stack((good, good), dim=-1)[..., 0],
    }[wrong]
    before = pair.memory.layers[0].clone()
    name = ("queries", "keys", "values")[which]
    with pytest.raises(ValueError, match=f"{name} must be"):
        pair.attention.plan(spans).attend(0, *tensors)
    assert torch.equal(pair.memory.layers[0].nan_to_num(7.0), before.nan_to_num(7.0))


@pytest.mark.parametrize(
    ("variant", "message"),
    [({"window": 0}, "a window must be of at least 1"), ({"softcap": 0.0}, "must be above 0")],
)
def test_a_window_or_a_cap_that_makes_no_sense_is_refused(
    variant: dict[str, Any], message: str
) -> None:
    spans = spans_of(DECODES)
    pair = Pair(spans)
    with pytest.raises(ValueError, match=message):
        pair.attention.plan(spans).attend(0, *pair.inputs(), **variant)


@pytest.mark.parametrize(
    ("kv", "heads", "message"),
    [
        (memory(head_dim=96), 4, "64, 128 and 256, not 96: use --attention torch"),
        (memory(dtype=torch.float64), 4, "bfloat16 and float16, not torch.float64: use --dtype"),
        (memory(), 5, "not 5 and 2: look at num_attention_heads and num_key_value_heads"),
        (memory(), 0, "not 0 and 2"),
        (
            KVMemory.of_layers([(2, 64), (1, 128)], 10, BLOCK, torch.float32),
            4,
            r"layers of one shape, .* \[\(1, 128\), \(2, 64\)\]: use --attention torch",
        ),
    ],
    ids=["head_dim", "dtype", "heads", "no heads", "layers"],
)
def test_a_memory_that_the_kernels_cannot_read_is_refused(
    kv: KVMemory, heads: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        FlashInferAttention(kv, heads, make_fake())


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_every_group_of_heads_is_decoded_on_the_cores_that_can(group: int) -> None:
    """The fake refuses groups that decoding without tensor cores has no kernel for."""
    pair = Pair(spans_of(DECODES), group=group)
    pair.check()
    assert pair.attention.heads.tensor_cores == (group >= 4)


def test_a_wrapper_is_planned_again_only_after_its_last_plan_was_copied() -> None:
    events: list[str] = []

    class Wrapper:
        def plan(self, value: int, *, of: int) -> None:
            events.append(f"plan {value} of {of}")

        def run(self) -> None: ...

    class Marks:
        def set(self) -> None:
            events.append("set")

        def wait(self) -> None:
            events.append("wait")

    wrapper = PlannedWrapper(Wrapper(), Marks())
    wrapper.plan(1, of=2)
    wrapper.plan(2, of=2)
    assert events == ["wait", "plan 1 of 2", "set", "wait", "plan 2 of 2", "set"]


def test_placed_arrays_keep_their_values_and_begin_at_16_bytes() -> None:
    arrays = [np.arange(size, dtype=np.int32) + size for size in (1, 4, 5, 3)]
    host, moved = place(arrays, torch.device("meta"))
    assert [part.tolist() for part in host] == [[1], [4, 5, 6, 7], [5, 6, 7, 8, 9], [3, 4, 5]]
    assert [part.storage_offset() for part in host] == [0, 4, 8, 16]
    assert [(part.shape, part.device.type) for part in moved] == [
        (part.shape, "meta") for part in host
    ]
    same, _ = place(arrays, torch.device("cpu"))
    assert [part.tolist() for part in same] == [part.tolist() for part in host]
