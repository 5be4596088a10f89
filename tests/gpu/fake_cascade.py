"""The fake flashinfer's cascade: pages that several requests share are read once for all."""

from __future__ import annotations

from typing import Any

import torch

from tests.gpu.fake_cache import merge_in_place
from tests.gpu.fake_checks import require
from tests.gpu.fake_prefill import Prefill


class MultiLevelCascadeAttentionWrapper:
    """Levels of shared pages, widest sharing first; only the last one is causal."""

    def __init__(
        self, num_levels: int, float_workspace_buffer: torch.Tensor, kv_layout: str = "NHD"
    ) -> None:
        require(num_levels >= 1, f"a cascade needs a level, not {num_levels}")
        # The real one leaves its backend to be chosen by the device; the caller sets it.
        self._batch_prefill_wrappers = [
            Prefill(float_workspace_buffer, kv_layout, "auto") for _ in range(num_levels)
        ]

    def plan(
        self,
        qo_indptr_arr: list[torch.Tensor],
        paged_kv_indptr_arr: list[torch.Tensor],
        paged_kv_indices_arr: list[torch.Tensor],
        paged_kv_last_page_len: list[torch.Tensor],
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        causal: bool = False,
        *,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: Any = None,
        kv_data_type: Any = None,
    ) -> None:
        """Keep what all runs up to the next plan share."""
        wrappers = self._batch_prefill_wrappers
        arrays = (qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len)
        for given in arrays:
            require(len(given) == len(wrappers), f"{len(wrappers)} levels, not {len(given)}")
        # A window is counted from the end of each level, which is no token's own position.
        windowed = window_left >= 0 and len(wrappers) > 1
        require(not windowed, "a cascade cannot have a window")
        bounds = [set(indptr.tolist()) for indptr in qo_indptr_arr]
        for level in range(1, len(wrappers)):
            nested = bounds[level - 1] <= bounds[level]
            same_end = max(bounds[level - 1]) == max(bounds[level])
            require(nested and same_end, f"level {level} does not divide the one before it")
        for level, wrapper in enumerate(wrappers):
            wrapper.plan(
                qo_indptr_arr[level],
                paged_kv_indptr_arr[level],
                paged_kv_indices_arr[level],
                paged_kv_last_page_len[level],
                num_qo_heads,
                num_kv_heads,
                head_dim,
                page_size,
                causal=causal and level == len(wrappers) - 1,
                sm_scale=sm_scale,
                window_left=window_left,
                logits_soft_cap=logits_soft_cap,
                q_data_type=q_data_type,
                kv_data_type=kv_data_type,
            )

    def run(self, q: torch.Tensor, paged_kv_cache: Any) -> torch.Tensor:
        """Attention of this layer's queries over all levels together."""
        *shared, own = self._batch_prefill_wrappers
        out: torch.Tensor
        out, lse = own.run(q, paged_kv_cache, return_lse=True)
        for wrapper in shared:
            merge_in_place(out, lse, *wrapper.run(q, paged_kv_cache, return_lse=True))
        return out
