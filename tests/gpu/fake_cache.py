"""The fake flashinfer's functions on pages and on the states of partial attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.gpu.fake_checks import (
    FLOATS,
    KV_FLOATS,
    MORE_HEAD_DIMS,
    check_head_dim,
    check_index,
    check_indptr,
    check_vectors,
    float_type,
    require,
    split_cache,
)
from tests.gpu.fake_paged import take_pages

_LN2 = math.log(2)


def append_paged_kv_cache(
    append_key: torch.Tensor,
    append_value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    paged_kv_cache: Any,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_last_page_len: torch.Tensor,
    kv_layout: str = "NHD",
) -> None:
    """Write each token's K and V to its position in its request's pages, in place.

    ``kv_indices`` may go on behind what ``kv_indptr`` covers: the real kernel only looks up
    ``kv_indices[kv_indptr[request] + position // page_size]``.
    """
    keys, values = split_cache(paged_kv_cache, kv_layout)
    float_type("the cache", keys.dtype, KV_FLOATS)
    count, page_size, kv_heads, head_dim = keys.shape
    check_head_dim(head_dim, MORE_HEAD_DIMS)
    tokens = len(append_key)
    for name, rows in (("append_key", append_key), ("append_value", append_value)):
        check_vectors(name, rows, keys.dtype, head_dim)
        require(rows.shape[1] == kv_heads, f"{name} has {rows.shape[1]} heads, not {kv_heads}")
        require(len(rows) == tokens, f"{len(rows)} values for {tokens} keys")
        require(rows.device == keys.device, f"{name} is on {rows.device}, not {keys.device}")
    check_index("batch_indices", batch_indices, tokens)
    check_index("positions", positions, tokens)
    offsets = check_indptr("kv_indptr", kv_indptr)
    pages = take_pages(kv_indptr, kv_indices[: offsets[-1]], kv_last_page_len, page_size)
    require(int(pages.ids.max()) < count, f"a page id is beyond the cache's {count}")
    for token, (request, position) in enumerate(
        zip(batch_indices.tolist(), positions.tolist(), strict=True)
    ):
        require(0 <= request < pages.count, f"there is no request {request}")
        known = 0 <= position < pages.length(request)
        require(known, f"request {request} has no position {position}")
        page = int(pages.of(request)[position // page_size])
        keys[page, position % page_size] = append_key[token]
        values[page, position % page_size] = append_value[token]


def get_seq_lens(
    kv_indptr: torch.Tensor, kv_last_page_len: torch.Tensor, page_size: int
) -> torch.Tensor:
    """The tokens of each request, int32."""
    offsets = check_indptr("kv_indptr", kv_indptr)
    check_index("kv_last_page_len", kv_last_page_len, len(offsets) - 1)
    pages = kv_indptr[1:] - kv_indptr[:-1]
    return torch.clamp(pages - 1, min=0) * page_size + kv_last_page_len


def get_batch_indices_positions(
    append_indptr: torch.Tensor, seq_lens: torch.Tensor, nnz: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each appended token, the last ones of their requests: its request and its position."""
    offsets = check_indptr("append_indptr", append_indptr, covered=nnz)
    check_index("seq_lens", seq_lens, len(offsets) - 1)
    requests: list[int] = []
    positions: list[int] = []
    for request, length in enumerate(seq_lens.tolist()):
        new = offsets[request + 1] - offsets[request]
        require(new <= length, f"request {request}: {new} new tokens of {length}")
        requests += [request] * new
        positions += range(length - new, length)
    device = append_indptr.device
    return (
        torch.tensor(requests, dtype=torch.int32, device=device),
        torch.tensor(positions, dtype=torch.int32, device=device),
    )


def merge_states(v: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One state of several: ``v`` [tokens, states, heads, head_dim], ``s`` their base-2 LSE."""
    require(v.dim() == 4 and v.dtype in FLOATS, "v must be [tokens, states, heads, head_dim]")
    require(s.shape == v.shape[:3] and s.dtype == torch.float32, "s must be float32, one a head")
    require(v.is_contiguous() and s.is_contiguous(), "states must be contiguous")
    _, _, heads, head_dim = v.shape
    check_head_dim(head_dim, MORE_HEAD_DIMS)
    # A thread handles so many values of a head; all heads of a token go into one block of threads.
    vector = max(16 // v.element_size(), head_dim // 32)
    threads = heads * (head_dim // vector)
    require(threads <= 1024, f"{heads} heads of {head_dim} need {threads} threads, over 1024")
    total = torch.logsumexp(s.double() * _LN2, dim=1)
    weights = torch.nan_to_num(torch.exp(s.double() * _LN2 - total[:, None]))
    merged = (v.double() * weights[..., None]).sum(dim=1)
    return merged.to(v.dtype), (total / _LN2).float()


def merge_state(
    v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One state of two: ``v`` [tokens, heads, head_dim], ``s`` its base-2 LSE [tokens, heads]."""
    alike = v_a.shape == v_b.shape and v_a.dtype == v_b.dtype and s_a.shape == s_b.shape
    require(alike and v_a.dim() == 3, "two states must be alike, of three dimensions")
    whole = all(part.is_contiguous() for part in (v_a, s_a, v_b, s_b))
    require(whole, "states must be contiguous")
    return merge_states(torch.stack((v_a, v_b), dim=1), torch.stack((s_a, s_b), dim=1))


def merge_in_place(
    v: torch.Tensor, s: torch.Tensor, v_other: torch.Tensor, s_other: torch.Tensor
) -> None:
    """Merge another state into this one."""
    merged_v, merged_s = merge_state(v, s, v_other, s_other)
    v.copy_(merged_v)
    s.copy_(merged_s)
