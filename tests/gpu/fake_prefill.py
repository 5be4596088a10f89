"""The fake flashinfer's wrappers: planned once, run once a layer. Here: prefill."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from tests.gpu.fake_checks import (
    FLOATS,
    KV_FLOATS,
    check_on_host,
    float_type,
    require,
)
from tests.gpu.fake_paged import (
    Pages,
    Plan,
    Scoring,
    Shape,
    attend_pages,
    take_pages,
    take_queries,
)


class Wrapper:
    """What prefill and decode have in common."""

    def __init__(self, workspace: torch.Tensor, kv_layout: str, backend: str) -> None:
        flat = workspace.dim() == 1 and workspace.is_contiguous()
        require(workspace.dtype == torch.uint8 and flat, "a workspace is a flat uint8 tensor")
        require(kv_layout in ("NHD", "HND"), f"no such layout: {kv_layout}")
        self._kv_layout = kv_layout
        self._backend = backend
        self._plan: Plan | None = None
        self._pages: Pages | None = None
        self._indices: torch.Tensor | None = None

    def _planned_pages(self) -> Pages:
        pages = self._pages
        assert pages is not None
        assert self._indices is not None
        # The real wrapper may keep the caller's own array instead of a copy.
        same = torch.equal(self._indices.to(torch.int64), pages.ids)
        require(same, "the indices given to plan were changed before run")
        return pages

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: Any,
        *,
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
        window_left: int | None = None,
    ) -> Any:
        """Attention of this layer's queries as planned; with ``return_lse`` also the base-2 LSE."""
        plan = self._plan
        require(plan is not None, "run before plan")
        assert plan is not None
        scoring = plan.scoring
        scale = scoring.scale
        for factor in (q_scale, k_scale):
            scale *= 1.0 if factor is None else factor
        if window_left is not None:
            same = (window_left >= 0) == (scoring.window_left >= 0)
            require(same, "a window can only be changed by run where one was planned")
            scoring = dataclasses.replace(scoring, window_left=window_left)
        scoring = dataclasses.replace(scoring, scale=scale)
        attended, total = attend_pages(
            plan, self._planned_pages(), q, paged_kv_cache, self._kv_layout, scoring
        )
        if v_scale is not None:
            attended = attended * v_scale
        result = _written("out", out, attended.to(plan.out_dtype))
        if not return_lse:
            return result
        return result, _written("lse", lse, total)


def _written(name: str, given: torch.Tensor | None, result: torch.Tensor) -> torch.Tensor:
    """The result, in the caller's tensor where there is one."""
    if given is None:
        return result
    alike = given.shape == result.shape and given.dtype == result.dtype
    require(alike and given.device == result.device, f"{name} must be like {result.shape}")
    require(given.is_contiguous(), f"{name} must be contiguous")
    return given.copy_(result)


class Prefill(Wrapper):
    """Any number of queries a request."""

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        head_dim_vo: int | None = None,
        causal: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: Any = None,
        kv_data_type: Any = None,
        o_data_type: Any = None,
        non_blocking: bool = True,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
    ) -> None:
        """Keep what all runs up to the next plan share."""
        require(self._backend == "fa2", f"the backend must be fa2, not {self._backend}")
        require(max_sequence_kv is None, "max_sequence_kv raises UnboundLocalError with fa2")
        require(head_dim_vo in (None, head_dim_qk), "K and V must have the same head_dim")
        check_on_host("paged_kv_indptr", paged_kv_indptr)
        check_on_host("paged_kv_last_page_len", paged_kv_last_page_len)
        pages = take_pages(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        queries = take_queries(qo_indptr, pages, causal)
        longest = max(queries[i + 1] - queries[i] for i in range(pages.count))
        bound = longest if max_token_per_sequence is None else max_token_per_sequence
        require(bound >= longest, f"max_token_per_sequence {bound} is below {longest}")
        q_dtype = float_type("q_data_type", q_data_type, FLOATS)
        self._plan = Plan(
            queries,
            Shape(num_qo_heads, num_kv_heads, head_dim_qk, page_size),
            Scoring(
                causal,
                head_dim_qk**-0.5 if sm_scale is None else sm_scale,
                window_left,
                logits_soft_cap or 0.0,
            ),
            q_dtype,
            float_type("kv_data_type", kv_data_type, KV_FLOATS),
            float_type("o_data_type", o_data_type or q_dtype, FLOATS),
        )
        self._pages, self._indices = pages, paged_kv_indices


class BatchPrefillWithPagedKVCacheWrapper(Prefill):
    """Without CUDA graphs and custom masks."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, backend)
        require(backend == "fa2", f"the backend must be fa2, not {backend}")
