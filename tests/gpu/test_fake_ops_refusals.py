"""What the fake flashinfer's other functions refuse: each is called rightly first, then wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.gpu.fake_checks import Rejected
from tests.gpu.fake_flashinfer import make_fake
from tests.gpu.fake_inputs import DIM, F16, HEADS, KV_HEADS, cache, ints, queries


def append(**changes: Any) -> None:
    given = {
        "append_key": queries(2, heads=KV_HEADS),
        "append_value": queries(2, heads=KV_HEADS),
        "batch_indices": ints(0, 1),
        "positions": ints(6, 0),
        "paged_kv_cache": cache(),
        "kv_indices": ints(5, 2, 0),
        "kv_indptr": ints(0, 2, 3),
        "kv_last_page_len": ints(3, 1),
    }
    make_fake().append_paged_kv_cache(**given | changes)


def merge(heads: int = HEADS, dtype: Any = F16, s_dtype: Any = torch.float32) -> None:
    v, s = torch.zeros(1, heads, 128, dtype=dtype), torch.zeros(1, heads, dtype=s_dtype)
    make_fake().merge_state(v, s, v, s)


def rotate(**changes: Any) -> None:
    given = {"q": queries(2), "k": queries(2, heads=KV_HEADS), "pos_ids": ints(0, 7)}
    make_fake().apply_rope_pos_ids_inplace(**given | changes)


def rotate_by_table(**changes: Any) -> None:
    given = {
        "positions": ints(0, 7),
        "query": queries(2).flatten(1),
        "key": queries(2).flatten(1),
        "head_size": DIM,
        "cos_sin_cache": torch.zeros(8, DIM),
    }
    make_fake().apply_rope_with_cos_sin_cache_inplace(**given | changes)


def norm(**changes: Any) -> None:
    given = {"input": torch.ones(2, 8), "residual": torch.ones(2, 8), "weight": torch.ones(8)}
    make_fake().fused_add_rmsnorm(**given | changes)


@pytest.mark.parametrize(
    ("call", "changes", "says"),
    [
        (append, {"positions": torch.tensor([6, 0])}, "positions must be int32"),
        (append, {"positions": ints(7, 0)}, "request 0 has no position 7"),
        (append, {"positions": ints(6, -1)}, "request 1 has no position -1"),
        (append, {"batch_indices": ints(0, 2)}, "there is no request 2"),
        (append, {"batch_indices": ints(0)}, "must have 2 entries, not 1"),
        (append, {"paged_kv_cache": cache(pages=5)}, "beyond the cache's 5"),
        (append, {"append_key": queries(2)}, "append_key has 4 heads, not 2"),
        (append, {"append_value": queries(1, heads=KV_HEADS)}, "1 values for 2 keys"),
        (
            append,
            {"append_key": queries(2, KV_HEADS, dtype=torch.float32)},
            "must be torch.float16",
        ),
        (append, {"kv_last_page_len": ints(3, 0)}, "between 1 and 4"),
        (append, {"kv_layout": "HDN"}, "no such layout"),
        (merge, {"heads": 65}, "need 1040 threads, over 1024"),
        (merge, {"s_dtype": F16}, "s must be float32"),
        (rotate, {"pos_ids": torch.tensor([0, 7])}, "pos_ids must be int32"),
        (rotate, {"pos_ids": ints(0, -1)}, "below 0"),
        (rotate, {"rotary_dim": 65}, "cannot rotate"),
        (rotate, {"q": queries(2, dim=96), "k": queries(2, dim=96)}, "head_dim must be one of"),
        (rotate, {"k": queries(3)}, "3 keys for 2 queries"),
        (rotate, {"k": queries(2, dtype=torch.float32)}, "k must be torch.float16"),
        (rotate_by_table, {"positions": ints(0, 8)}, "beyond the table's 8"),
        (rotate_by_table, {"cos_sin_cache": torch.zeros(8, DIM, dtype=F16)}, "must be float32"),
        (norm, {"weight": torch.ones(8, dtype=F16)}, "the weight is torch.float16"),
        (norm, {"weight": torch.ones(4)}, "for rows of 8"),
        (norm, {"residual": torch.ones(3, 8)}, "is not"),
        (norm, {"input": torch.ones(2, 16)[:, ::2]}, "contiguous in its last dimension"),
    ],
)
def test_a_wrong_operation_is_refused(
    call: Callable[..., None], changes: dict[str, Any], says: str
) -> None:
    call()
    with pytest.raises(Rejected, match=says):
        call(**changes)


def test_rows_that_the_activation_cannot_read_are_refused() -> None:
    fake = make_fake()
    with pytest.raises(Rejected, match="no whole number of 16 bytes"):
        fake.silu_and_mul(torch.ones(2, 8, dtype=F16))
    with pytest.raises(Rejected, match="must be contiguous"):
        fake.silu_and_mul(torch.ones(2, 32, dtype=F16)[:, :16])


def test_new_tokens_must_be_among_a_requests_tokens() -> None:
    with pytest.raises(Rejected, match="request 1: 2 new tokens of 1"):
        make_fake().get_batch_indices_positions(ints(0, 1, 3), ints(7, 1), 3)
    with pytest.raises(Rejected, match="ends at 3 instead of 4"):
        make_fake().get_batch_indices_positions(ints(0, 1, 3), ints(7, 7), 4)
