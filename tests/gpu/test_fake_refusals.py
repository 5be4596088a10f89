"""What the fake flashinfer refuses to plan or run, one mistake at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.gpu.fake_checks import Rejected
from tests.gpu.fake_flashinfer import make_fake
from tests.gpu.fake_inputs import DIM, F16, HEADS, KV_HEADS, PAGE, cache, ints, queries, workspace


def gaps(*values: int) -> torch.Tensor:
    """Not contiguous: every second entry of a longer array."""
    return torch.tensor(values, dtype=torch.int32).repeat_interleave(2)[::2]


SIZES = {
    "num_qo_heads": HEADS,
    "num_kv_heads": KV_HEADS,
    "page_size": PAGE,
    "q_data_type": F16,
    "kv_data_type": F16,
}
PREFILL = SIZES | {
    "qo_indptr": ints(0, 2, 3),
    "paged_kv_indptr": ints(0, 2, 3),
    "paged_kv_indices": ints(5, 2, 0),
    "paged_kv_last_page_len": ints(3, 1),
    "head_dim_qk": DIM,
    "causal": True,
}
DECODE = SIZES | {
    "indptr": ints(0, 2, 3),
    "indices": ints(5, 2, 0),
    "last_page_len": ints(3, 1),
    "head_dim": DIM,
}
CASCADE = SIZES | {
    "qo_indptr_arr": [ints(0, 2), ints(0, 1, 2)],
    "paged_kv_indptr_arr": [ints(0, 1), ints(0, 1, 2)],
    "paged_kv_indices_arr": [ints(0), ints(1, 2)],
    "paged_kv_last_page_len": [ints(PAGE), ints(1, 1)],
    "head_dim": DIM,
    "causal": True,
}


def prefill(**changes: Any) -> Any:
    wrapper = make_fake().BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa2")
    wrapper.plan(**PREFILL | changes)
    return wrapper


def decode(*, use_tensor_cores: Any = False, **changes: Any) -> Any:
    wrapper = make_fake().BatchDecodeWithPagedKVCacheWrapper(
        workspace(), "NHD", use_tensor_cores=use_tensor_cores, backend="fa2"
    )
    wrapper.plan(**DECODE | changes)
    return wrapper


def cascade(backend: str = "fa2", **changes: Any) -> Any:
    wrapper = make_fake().MultiLevelCascadeAttentionWrapper(2, workspace(), "NHD")
    for level in wrapper._batch_prefill_wrappers:
        level._backend = backend
    wrapper.plan(**CASCADE | changes)
    return wrapper


def graph(use_tensor_cores: bool = False) -> Any:
    return make_fake().CUDAGraphBatchDecodeWithPagedKVCacheWrapper(
        workspace(), ints(0, 0, 0), ints(0, 0, 0), ints(0, 0), use_tensor_cores=use_tensor_cores
    )


def test_the_right_calls_go_through() -> None:
    assert prefill().run(queries(3), cache()).shape == (3, HEADS, DIM)
    assert decode().run(queries(2), cache()).shape == (2, HEADS, DIM)
    assert cascade().run(queries(2), cache()).shape == (2, HEADS, DIM)
    graph().plan(**DECODE)


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_the_known_head_dims_go_through(dim: int) -> None:
    result = prefill(head_dim_qk=dim).run(queries(3, dim=dim), cache(dim=dim))
    assert result.shape == (3, HEADS, dim)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"qo_indptr": torch.tensor([0, 2, 3])}, "qo_indptr must be int32, not torch.int64"),
        ({"paged_kv_indices": torch.tensor([5, 2, 0])}, "indices must be int32"),
        ({"paged_kv_last_page_len": torch.tensor([3, 1])}, "last_page_len must be int32"),
        ({"qo_indptr": gaps(0, 2, 3)}, "qo_indptr must be contiguous"),
        ({"paged_kv_indices": gaps(5, 2, 0)}, "indices must be contiguous"),
        ({"qo_indptr": [0, 2, 3]}, "must be a tensor"),
        ({"qo_indptr": ints(0, 2, 3).view(3, 1)}, "one dimension"),
        ({"paged_kv_last_page_len": ints(0, 1)}, "between 1 and 4"),
        ({"paged_kv_last_page_len": ints(3, 5)}, "between 1 and 4"),
        ({"paged_kv_last_page_len": ints(3)}, "must have 2 entries, not 1"),
        ({"paged_kv_indptr": ints(1, 2, 3)}, "must begin with 0, not 1"),
        ({"paged_kv_indptr": ints(0, 4, 3)}, "must never fall"),
        ({"paged_kv_indptr": ints(0, 1, 2)}, "ends at 2 instead of 3"),
        ({"paged_kv_indptr": ints(0, 3, 3)}, r"requests without a page: \[1\]"),
        ({"qo_indptr": ints(0, 3)}, "must have 3 entries, not 2"),
        ({"qo_indptr": ints(0, 2, 1)}, "must never fall"),
        ({"qo_indptr": ints(0, 1, 3)}, "request 1: 2 queries over 1 tokens"),
        ({"paged_kv_indices": ints(5, -1, 0)}, "below 0"),
        ({"q_data_type": None}, "q_data_type must be given"),
        ({"kv_data_type": None}, "kv_data_type must be given"),
        ({"q_data_type": torch.float8_e4m3fn}, "q_data_type cannot be"),
        ({"head_dim_qk": 96}, r"must be one of \(64, 128, 256\), not 96"),
        ({"head_dim_vo": 128}, "the same head_dim"),
        ({"num_kv_heads": 3}, "4 query heads cannot share 3 KV heads"),
        ({"page_size": 0}, "room for a token"),
        ({"window_left": -2}, "window_left"),
        ({"logits_soft_cap": -1.0}, "logits_soft_cap"),
        ({"max_sequence_kv": 7}, "UnboundLocalError"),
        ({"max_token_per_sequence": 1}, "max_token_per_sequence 1 is below 2"),
    ],
)
def test_a_wrong_plan_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(Rejected, match=says):
        prefill(**changes)


def test_an_empty_batch_is_refused() -> None:
    nobody = {"indptr": ints(0), "indices": ints(), "last_page_len": ints()}
    with pytest.raises(Rejected, match="names no request"):
        decode(**nobody)


@pytest.mark.parametrize(
    ("q", "pages", "says"),
    [
        (queries(3, heads=8), cache(), "q has 8 heads, not 4"),
        (queries(3, dim=128), cache(), "q has head_dim 128, not 64"),
        (queries(2), cache(), "q has 2 tokens, not 3"),
        (queries(3, dtype=torch.bfloat16), cache(), "q must be torch.float16, not torch.bfloat16"),
        (queries(3, dim=128)[..., ::2], cache(), "q must be contiguous in its last dimension"),
        (queries(3).flatten(1), cache(), "three dimensions"),
        (queries(3), cache(dtype=torch.bfloat16), "the cache is torch.bfloat16"),
        (queries(3), cache(heads=4), "pages are"),
        (queries(3), cache(page=8), "pages are"),
        (queries(3), cache(dim=128), "pages are"),
        (queries(3), cache().transpose(2, 3).contiguous(), "pages are"),  # the other layout
        (queries(3), cache(two=1), "second dimension must be 2"),
        (queries(3), cache(pages=5), "beyond the cache's 5"),
        (queries(3), (cache()[:, 0], cache(pages=5)[:, 1]), "must be alike"),
        (queries(3), (cache()[:, 0], cache()[:, 1].contiguous()), "the same strides"),
    ],
)
def test_a_run_unlike_the_plan_is_refused(q: torch.Tensor, pages: Any, says: str) -> None:
    with pytest.raises(Rejected, match=says):
        prefill().run(q, pages)


def test_a_run_before_a_plan_is_refused() -> None:
    fake = make_fake()
    wrapper = fake.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa2")
    with pytest.raises(Rejected, match="run before plan"):
        wrapper.run(queries(3), cache())


def test_changing_the_indices_after_the_plan_is_refused() -> None:
    indices = ints(5, 2, 0)
    wrapper = prefill(paged_kv_indices=indices)
    indices[0] = 1
    with pytest.raises(Rejected, match="changed before run"):
        wrapper.run(queries(3), cache())


def test_a_result_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Rejected, match="out must be like"):
        prefill().run(queries(3), cache(), out=queries(3, dtype=torch.float32))
    with pytest.raises(Rejected, match="a window can only be changed"):
        prefill().run(queries(3), cache(), window_left=1)


@pytest.mark.parametrize("name", ["BatchPrefill", "BatchDecode"])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "the backend must be fa2, not auto"),
        ({"backend": "fa3"}, "the backend must be fa2, not fa3"),
        ({"backend": "fa2", "kv_layout": "NDH"}, "no such layout"),
        ({"backend": "fa2", "float_workspace_buffer": torch.empty(8)}, "flat uint8"),
    ],
)
def test_a_wrong_wrapper_is_refused(name: str, changes: dict[str, Any], says: str) -> None:
    make = getattr(make_fake(), f"{name}WithPagedKVCacheWrapper")
    with pytest.raises(Rejected, match=says):
        make(**{"float_workspace_buffer": workspace()} | changes)


def test_decode_without_tensor_cores_knows_few_groups() -> None:
    heads = {"num_qo_heads": 14, "num_kv_heads": 2}
    with pytest.raises(Rejected, match="no kernel for groups of 7"):
        decode(**heads)
    assert decode(use_tensor_cores=True, **heads).run(queries(2, heads=14), cache()).shape[1] == 14


def test_a_graph_is_for_one_batch_and_one_model() -> None:
    wrapper = graph()
    wrapper.plan(**DECODE)
    one = {"indptr": ints(0, 1), "indices": ints(0), "last_page_len": ints(1)}
    with pytest.raises(Rejected, match="the graph is for 2 requests, not 1"):
        wrapper.plan(**DECODE | one)
    more = {"indptr": ints(0, 2, 4), "indices": ints(0, 1, 2, 3), "last_page_len": ints(1, 1)}
    with pytest.raises(Rejected, match="4 pages need a larger buffer"):
        wrapper.plan(**DECODE | more)
    with pytest.raises(Rejected, match="cannot be"):
        wrapper.plan(**DECODE | {"sm_scale": 1.0})
    with pytest.raises(Rejected, match="disable_split_kv"):
        wrapper.plan(**DECODE | {"disable_split_kv": True})


def test_an_fp8_graph_on_tensor_cores_needs_a_backend() -> None:
    fp8 = DECODE | {"kv_data_type": torch.float8_e4m3fn}
    graph(use_tensor_cores=True).plan(**DECODE)
    wrapper = graph(use_tensor_cores=True)
    with pytest.raises(Rejected, match="the backend must be fa2, not auto"):
        wrapper.plan(**fp8)
    wrapper._backend = "fa2"
    wrapper.plan(**fp8)
    assert wrapper.run(queries(2), cache(dtype=torch.float8_e4m3fn)).dtype == F16


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"backend": "auto"}, "the backend must be fa2, not auto"),
        ({"window_left": 8}, "a cascade cannot have a window"),
        ({"qo_indptr_arr": [ints(0, 2)]}, "2 levels, not 1"),
        ({"qo_indptr_arr": [ints(0, 3), ints(0, 1, 2)]}, "level 1 does not divide"),
    ],
)
def test_a_wrong_cascade_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(Rejected, match=says):
        cascade(**changes)
