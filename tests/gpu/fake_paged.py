"""Pages and the attention over them, as the fake flashinfer computes it: in float32."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from tests.gpu.fake_checks import (
    check_head_dim,
    check_index,
    check_indptr,
    check_on_host,
    check_vectors,
    require,
    split_cache,
)


@dataclass(frozen=True)
class Pages:
    """The pages of each request: ``ids[indptr[i] : indptr[i + 1]]``, the last filled to ``last``.

    ``ids`` is a copy, so what the caller does to its arrays later changes nothing here.
    """

    indptr: list[int]
    ids: torch.Tensor
    last: list[int]
    page_size: int

    @property
    def count(self) -> int:
        """Requests."""
        return len(self.last)

    def of(self, request: int) -> torch.Tensor:
        """The page ids of one request, int64."""
        return self.ids[self.indptr[request] : self.indptr[request + 1]]

    def length(self, request: int) -> int:
        """The tokens that a request has K and V of."""
        pages = self.indptr[request + 1] - self.indptr[request]
        return (pages - 1) * self.page_size + self.last[request]


def take_pages(indptr: Any, indices: Any, last_page_len: Any, page_size: int) -> Pages:
    """A checked copy of the three arrays that say which pages each request has."""
    check_index("indices", indices)
    offsets = check_indptr("indptr", indptr, covered=len(indices))
    check_index("last_page_len", last_page_len, len(offsets) - 1)
    require(page_size >= 1, f"a page needs room for a token, not {page_size}")
    empty = [i for i in range(len(offsets) - 1) if offsets[i] == offsets[i + 1]]
    require(not empty, f"requests without a page: {empty}")
    last: list[int] = last_page_len.tolist()
    filled = all(1 <= length <= page_size for length in last)
    require(filled, f"last_page_len must lie between 1 and {page_size}: {last}")
    ids = indices.to(torch.int64)
    require(int(ids.min()) >= 0, "a page id is below 0")
    return Pages(offsets, ids, last, page_size)


@dataclass(frozen=True)
class Shape:
    """Heads and sizes that a plan was made for."""

    qo_heads: int
    kv_heads: int
    head_dim: int
    page_size: int

    def __post_init__(self) -> None:
        check_head_dim(self.head_dim)
        whole = self.kv_heads >= 1 and self.qo_heads >= 1 and self.qo_heads % self.kv_heads == 0
        require(whole, f"{self.qo_heads} query heads cannot share {self.kv_heads} KV heads")

    @property
    def group(self) -> int:
        """Query heads to a KV head."""
        return self.qo_heads // self.kv_heads


@dataclass(frozen=True)
class Scoring:
    """How scores are made: ``window_left`` -1 and ``softcap`` 0 stand for none."""

    causal: bool
    scale: float
    window_left: int
    softcap: float

    def __post_init__(self) -> None:
        require(self.window_left >= -1, f"window_left must be -1 or more, not {self.window_left}")
        require(self.softcap >= 0, f"logits_soft_cap must be 0 or more, not {self.softcap}")


@dataclass(frozen=True)
class Plan:
    """What `plan` keeps for all runs up to the next one."""

    queries: list[int]
    shape: Shape
    scoring: Scoring
    q_dtype: torch.dtype
    kv_dtype: torch.dtype
    out_dtype: torch.dtype


def take_queries(qo_indptr: Any, pages: Pages, causal: bool) -> list[int]:
    """The checked offsets of each request's queries."""
    queries = check_indptr("qo_indptr", qo_indptr)
    check_on_host("qo_indptr", qo_indptr)
    check_index("qo_indptr", qo_indptr, pages.count + 1)
    for request in range(pages.count):
        asked = queries[request + 1] - queries[request]
        fits = not causal or asked <= pages.length(request)
        require(fits, f"request {request}: {asked} queries over {pages.length(request)} tokens")
    return queries


def attend_pages(
    plan: Plan, pages: Pages, q: torch.Tensor, cache: Any, layout: str, scoring: Scoring
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in float32 [tokens, heads, head_dim], and the LSE to the base 2 [tokens, heads]."""
    keys, values = split_cache(cache, layout)
    shape = plan.shape
    check_vectors("q", q, plan.q_dtype, shape.head_dim)
    require(q.shape[0] == plan.queries[-1], f"q has {q.shape[0]} tokens, not {plan.queries[-1]}")
    require(q.shape[1] == shape.qo_heads, f"q has {q.shape[1]} heads, not {shape.qo_heads}")
    require(keys.dtype == plan.kv_dtype, f"the cache is {keys.dtype}, not {plan.kv_dtype}")
    require(keys.device == q.device, f"the cache is on {keys.device}, q on {q.device}")
    expected = (shape.page_size, shape.kv_heads, shape.head_dim)
    require(keys.shape[1:] == expected, f"pages are {tuple(keys.shape[1:])} as NHD, not {expected}")
    require(int(pages.ids.max()) < len(keys), f"a page id is beyond the cache's {len(keys)}")

    out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    for request in range(pages.count):
        rows = slice(plan.queries[request], plan.queries[request + 1])
        ids, length = pages.of(request).to(q.device), pages.length(request)
        out[rows], lse[rows] = _attend_one(
            q[rows].float(),
            keys[ids].float().reshape(-1, shape.kv_heads, shape.head_dim)[:length],
            values[ids].float().reshape(-1, shape.kv_heads, shape.head_dim)[:length],
            scoring,
        )
    return out, lse


def _attend_one(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
) -> tuple[torch.Tensor, torch.Tensor]:
    """One request: the last query sees up to the last key (bottom-right aligned)."""
    asked, heads, head_dim = q.shape
    length, kv_heads, _ = keys.shape
    grouped = q.reshape(asked, kv_heads, heads // kv_heads, head_dim)
    scores = torch.einsum("qhgd,khd->hgqk", grouped, keys) * scoring.scale
    if scoring.softcap > 0:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    at = torch.arange(length - asked, length, device=q.device)[:, None]
    key = torch.arange(length, device=q.device)[None, :]
    if scoring.causal:
        scores = scores.masked_fill(key > at, -math.inf)
    if scoring.window_left >= 0:
        scores = scores.masked_fill(key < at - scoring.window_left, -math.inf)
    total = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - total[..., None])
    out = torch.einsum("hgqk,khd->qhgd", weights, values).reshape(asked, heads, head_dim)
    return out, total.permute(2, 0, 1).reshape(asked, heads) / math.log(2)
