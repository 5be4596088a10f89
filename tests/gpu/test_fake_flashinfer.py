"""The fake flashinfer computes what the real one does: by hand, and by the real one's references.

The references ship with the real package, in plain torch. Those over pages read whole pages only.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.gpu.fake_flashinfer import make_fake
from tests.gpu.fake_inputs import DIM, HEADS, KV_HEADS, PAGE, ints, reference, workspace


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Other random inputs in every run; a failing one shows its seed."""
    print(f"seed {torch.seed()}")


def settings(**changes: Any) -> dict[str, Any]:
    """A plan of the two requests of `numbered`, in its own arguments' names."""
    return {
        "num_qo_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "page_size": PAGE,
        "q_data_type": torch.float32,
        "kv_data_type": torch.float32,
    } | changes


def prefill(**changes: Any) -> Any:
    """Planned: pages 5 and 2 with 7 tokens and 2 queries; page 0 with 1 token and 1 query."""
    wrapper = make_fake().BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa2")
    two = {
        "qo_indptr": ints(0, 2, 3),
        "paged_kv_indptr": ints(0, 2, 3),
        "paged_kv_indices": ints(5, 2, 0),
        "paged_kv_last_page_len": ints(3, 1),
        "head_dim_qk": DIM,
        "causal": True,
    }
    wrapper.plan(**settings(**two) | changes)
    return wrapper


def decode(**changes: Any) -> Any:
    """The same two requests, one query each."""
    fake = make_fake()
    wrapper = fake.BatchDecodeWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa2")
    two = {
        "indptr": ints(0, 2, 3),
        "indices": ints(5, 2, 0),
        "last_page_len": ints(3, 1),
        "head_dim": DIM,
    }
    wrapper.plan(**settings(**two) | changes)
    return wrapper


def numbered() -> torch.Tensor:
    """A cache whose values are their tokens' positions, over keys of 0; NaN where nobody looks."""
    cache = torch.full((6, 2, PAGE, KV_HEADS, DIM), math.nan)
    for page, first, tokens in ((5, 0, 4), (2, 4, 3), (0, 0, 1)):
        cache[page, 0, :tokens] = 0
        cache[page, 1, :tokens] = torch.arange(first, first + tokens)[:, None, None].float()
    return cache


def zeros(tokens: int) -> torch.Tensor:
    return torch.zeros(tokens, HEADS, DIM)


def per_token(result: torch.Tensor) -> list[float]:
    """The value that all entries of a token share, to six places."""
    torch.testing.assert_close(result, result[:, :1, :1].expand_as(result))
    return [round(value, 6) for value in result[:, 0, 0].tolist()]


def test_every_query_sees_up_to_its_own_token() -> None:
    # With keys of 0 all weights are equal. The queries are at 5 and 6 of seven tokens, and at 0.
    result, lse = prefill().run(zeros(3), numbered(), return_lse=True)
    assert per_token(result) == [2.5, 3.0, 0.0]
    expected = torch.tensor([math.log2(6), math.log2(7), 0.0])
    torch.testing.assert_close(lse, expected[:, None].expand(3, HEADS))


def test_without_a_causal_mask_every_query_sees_all_tokens() -> None:
    assert per_token(prefill(causal=False).run(zeros(3), numbered())) == [3.0, 3.0, 0.0]


def test_window_left_is_how_far_back_a_query_sees() -> None:
    # The tokens 4 and 5; the tokens 5 and 6; the token 0.
    assert per_token(prefill(window_left=1).run(zeros(3), numbered())) == [4.5, 5.5, 0.0]
    assert per_token(decode(window_left=0).run(zeros(2), numbered())) == [6.0, 0.0]


def test_decode_is_of_the_last_token() -> None:
    result, lse = decode().run(zeros(2), numbered(), return_lse=True)
    assert per_token(result) == [3.0, 0.0]
    torch.testing.assert_close(lse[:, 0], torch.tensor([math.log2(7), 0.0]))


@pytest.mark.parametrize(
    "scoring",
    [
        {"sm_scale": math.log(3)},
        # tanh of a large score is 1, so a cap is the score itself.
        {"sm_scale": 1000.0, "logits_soft_cap": math.log(3)},
    ],
)
def test_scores_are_scaled_and_capped(scoring: dict[str, float]) -> None:
    # Two tokens of scores 0 and log 3: weights 1/4 and 3/4, a sum of 4. Values 0 and 1.
    cache = torch.zeros(1, 2, PAGE, KV_HEADS, DIM)
    cache[0, :, 1, :, 0] = 1
    one = {"indptr": ints(0, 1), "indices": ints(0), "last_page_len": ints(2)}
    query = torch.zeros(1, HEADS, DIM)
    query[..., 0] = 1
    result, lse = decode(**one, **scoring).run(query, cache, return_lse=True)
    torch.testing.assert_close(result[0, :, 0], torch.full((HEADS,), 0.75))
    torch.testing.assert_close(lse, torch.full((1, HEADS), 2.0))
    # The factors of quantised tensors: 1/2 times 2 of scores, and 8 of values.
    scaled = decode(**one, **scoring).run(query, cache, q_scale=0.5, k_scale=2.0, v_scale=8.0)
    torch.testing.assert_close(scaled[0, :, 0], torch.full((HEADS,), 6.0))


def test_neighbouring_query_heads_share_a_kv_head() -> None:
    cache = torch.zeros(6, 2, PAGE, KV_HEADS, DIM)
    cache[:, 1, :, 1] = 1
    found = decode().run(zeros(2), cache)[0, :, 0]
    torch.testing.assert_close(found, torch.tensor([0.0, 0.0, 1.0, 1.0]))


@pytest.mark.parametrize("form", ["pair", "HND"])
def test_other_forms_of_a_cache_are_the_same_cache(form: str) -> None:
    cache = torch.randn(6, 2, PAGE, KV_HEADS, DIM)
    q = torch.randn(3, HEADS, DIM)
    expected = prefill().run(q, cache)
    if form == "pair":
        result = prefill().run(q, (cache[:, 0], cache[:, 1]))
    else:
        wrapper = prefill()
        wrapper._kv_layout = "HND"
        result = wrapper.run(q, cache.transpose(2, 3).contiguous())
    torch.testing.assert_close(result, expected)


def test_results_go_where_the_caller_wants_them() -> None:
    out, lse = torch.empty(3, HEADS, DIM), torch.empty(3, HEADS)
    result, total = prefill().run(zeros(3), numbered(), out=out, lse=lse, return_lse=True)
    assert (result is out, total is lse) == (True, True)
    assert per_token(out) == [2.5, 3.0, 0.0]


def test_a_plan_is_kept_for_all_layers_and_copies_what_it_was_given() -> None:
    last = ints(3, 1)
    wrapper = prefill(paged_kv_last_page_len=last)
    last += 1
    assert per_token(wrapper.run(zeros(3), numbered())) == [2.5, 3.0, 0.0]
    assert per_token(wrapper.run(zeros(3), numbered() + 1)) == [3.5, 4.0, 1.0]


def test_a_graphs_run_reads_the_buffers_that_plan_fills() -> None:
    fake = make_fake()
    buffers = ints(-1, -1, -1), ints(*[-1] * 6), ints(-1, -1)
    wrapper = fake.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(workspace(), *buffers)
    sizes = settings(head_dim=DIM)
    wrapper.plan(ints(0, 2, 3), ints(5, 2, 0), ints(3, 1), **sizes)
    info = wrapper._plan_info
    assert [buffer.tolist() for buffer in buffers] == [[0, 2, 3], [5, 2, 0, -1, -1, -1], [3, 1]]
    assert per_token(wrapper.run(zeros(2), numbered())) == [3.0, 0.0]
    wrapper.plan(ints(0, 1, 2), ints(0, 5), ints(1, 4), **sizes)
    assert per_token(wrapper.run(zeros(2), numbered())) == [0.0, 1.5]
    assert wrapper._plan_info == info


def test_a_cascade_is_the_attention_over_all_its_levels() -> None:
    # Three requests share the pages 3 and 1; then come pages of their own.
    fake = make_fake()
    cascade = fake.MultiLevelCascadeAttentionWrapper(2, workspace(), "NHD")
    for wrapper in cascade._batch_prefill_wrappers:
        wrapper._backend = "fa2"
    cascade.plan(
        [ints(0, 5), ints(0, 2, 4, 5)],
        [ints(0, 2), ints(0, 1, 3, 4)],
        [ints(3, 1), ints(0, 2, 5, 4)],
        [ints(PAGE), ints(3, 1, 2)],
        **settings(head_dim=DIM, causal=True),
    )
    alone = prefill(
        qo_indptr=ints(0, 2, 4, 5),
        paged_kv_indptr=ints(0, 3, 7, 10),
        paged_kv_indices=ints(3, 1, 0, 3, 1, 2, 5, 3, 1, 4),
        paged_kv_last_page_len=ints(3, 1, 2),
    )
    q, cache = torch.randn(5, HEADS, DIM), torch.randn(6, 2, PAGE, KV_HEADS, DIM)
    torch.testing.assert_close(cascade.run(q, cache), alone.run(q, cache))
    assert fake.calls["MultiLevelCascadeAttentionWrapper.run"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_prefill_and_decode_agree_with_the_references(dtype: torch.dtype) -> None:
    pages = torch.randperm(12).int()
    indptr = ints(0, 3, 4, 9)
    indices, last = pages[:9].contiguous(), ints(PAGE, PAGE, PAGE)
    queries = ints(0, 5, 9, 10)
    cache = torch.randn(12, 2, PAGE, KV_HEADS, DIM, dtype=dtype)
    dtypes = {"q_data_type": dtype, "kv_data_type": dtype}
    parts = (cache[:, 0], cache[:, 1])

    q = torch.randn(10, HEADS, DIM, dtype=dtype)
    planned = prefill(
        qo_indptr=queries,
        paged_kv_indptr=indptr,
        paged_kv_indices=indices,
        paged_kv_last_page_len=last,
        sm_scale=0.3,
        **dtypes,
    )
    result, lse = planned.run(q, cache, return_lse=True)
    expected = reference("attention", "_gqa_paged_prefill_reference")(
        q, *parts, queries, indptr, indices, 0.3
    )
    assert result.dtype == dtype
    # The reference rounds to bfloat16.
    torch.testing.assert_close(result.bfloat16(), expected[0], rtol=2**-6, atol=1e-4)
    torch.testing.assert_close(lse, expected[1], rtol=1e-4, atol=1e-4)

    q = torch.randn(3, HEADS, DIM, dtype=dtype)
    planned = decode(indptr=indptr, indices=indices, last_page_len=last, sm_scale=0.3, **dtypes)
    result, lse = planned.run(q, cache, return_lse=True)
    expected = reference("attention", "_gqa_paged_decode_reference")(
        q, *parts, indptr, indices, 0.3
    )
    torch.testing.assert_close(result.bfloat16(), expected[0], rtol=2**-6, atol=1e-4)
    torch.testing.assert_close(lse, expected[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_append_agrees_with_the_reference(layout: str) -> None:
    fake = make_fake()
    shape = (6, 2, PAGE, KV_HEADS, DIM) if layout == "NHD" else (6, 2, KV_HEADS, PAGE, DIM)
    cache, expected = torch.zeros(shape), torch.zeros(shape)
    indptr, indices, last = ints(0, 2, 3), ints(5, 2, 0), ints(3, 1)
    rows = fake.get_batch_indices_positions(ints(0, 4, 5), ints(7, 1), 5)
    assert [row.tolist() for row in rows] == [[0, 0, 0, 0, 1], [3, 4, 5, 6, 0]]
    keys, values = torch.randn(2, 5, KV_HEADS, DIM)
    given = (keys, values, *rows, cache, indices, indptr, last, layout)
    assert fake.append_paged_kv_cache(*given) is None
    reference("page", "_append_paged_kv_cache_reference")(*given[:4], expected, *given[5:])
    assert torch.equal(cache, expected)
    assert int(cache.count_nonzero()) == 2 * keys.numel()
    assert fake.get_seq_lens(indptr, last, PAGE).tolist() == [7, 1]


def test_merges_agree_with_the_references() -> None:
    fake = make_fake()
    v, s = torch.randn(5, 3, HEADS, DIM), 20 * torch.randn(5, 3, HEADS)
    merged = fake.merge_states(v, s)
    torch.testing.assert_close(merged, reference("cascade", "_merge_states_reference")(v, s))
    first, second = (v[:, 0].contiguous(), s[:, 0].contiguous()), (v[:, 1].clone(), s[:, 1].clone())
    merged = fake.merge_state(*first, *second)
    expected = reference("cascade", "_merge_state_reference")(*first, *second)
    torch.testing.assert_close(merged, expected)


def test_a_state_of_nothing_changes_no_other() -> None:
    fake = make_fake()
    v, s = torch.randn(2, HEADS, DIM), torch.randn(2, HEADS)
    nothing = torch.full_like(s, -math.inf)
    torch.testing.assert_close(fake.merge_state(v, s, torch.zeros_like(v), nothing), (v, s))


def test_calls_are_counted_for_each_fake_alone() -> None:
    fake, other = make_fake(), make_fake()
    wrapper = fake.BatchDecodeWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa2")
    wrapper.plan(ints(0, 1), ints(0), ints(1), head_dim=DIM, **settings())
    for _ in range(3):
        wrapper.run(zeros(1), numbered())
    fake.silu_and_mul(torch.ones(1, 16))
    name = "BatchDecodeWithPagedKVCacheWrapper"
    expected = {f"{name}.__init__": 1, f"{name}.plan": 1, f"{name}.run": 3, "silu_and_mul": 1}
    assert fake.calls == expected
    assert other.calls == {}


def test_a_name_that_the_fake_lacks_says_so() -> None:
    with pytest.raises(AttributeError, match="has no single_prefill_with_kv_cache"):
        _ = make_fake().single_prefill_with_kv_cache
