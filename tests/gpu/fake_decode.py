"""The fake flashinfer's decode wrappers: one query a request, at its last token."""

from __future__ import annotations

from typing import Any

import torch

from tests.gpu.fake_checks import (
    FLOATS,
    KV_FLOATS,
    check_index,
    check_on_host,
    float_type,
    require,
)
from tests.gpu.fake_paged import Pages, Plan, Scoring, Shape, take_pages
from tests.gpu.fake_prefill import Wrapper

# What the kernel without tensor cores is compiled for.
GROUPS = (1, 2, 3, 4, 6, 8)


class Decode(Wrapper):
    """What all decode wrappers have in common.

    ``buffers`` (indptr, indices, last_page_len) make it one for graphs: plan copies into them and
    run reads from them, as a captured graph does.
    """

    def __init__(
        self,
        workspace: torch.Tensor,
        kv_layout: str,
        backend: str,
        use_tensor_cores: bool,
        buffers: list[torch.Tensor],
    ) -> None:
        super().__init__(workspace, kv_layout, backend)
        self._use_tensor_cores = use_tensor_cores
        self._plan_info: list[int] = []
        self._buffers = buffers
        if buffers:
            indptr, indices, last_page_len = buffers
            check_index("the buffer of last_page_len", last_page_len)
            require(len(last_page_len) > 0, "a graph needs a batch size of at least 1")
            check_index("the buffer of indptr", indptr, len(last_page_len) + 1)
            check_index("the buffer of indices", indices)

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: Any = None,
        kv_data_type: Any = None,
        o_data_type: Any = None,
        sm_scale: float | None = None,
        non_blocking: bool = True,
        disable_split_kv: bool = False,
    ) -> None:
        """Keep what all runs up to the next plan share; copied into the buffers of a graph."""
        check_on_host("indptr", indptr)
        check_on_host("last_page_len", last_page_len)
        pages = take_pages(indptr, indices, last_page_len, page_size)
        shape = Shape(num_qo_heads, num_kv_heads, head_dim, page_size)
        q_dtype = float_type("q_data_type", q_data_type, FLOATS)
        kv_dtype = float_type("kv_data_type", kv_data_type, KV_FLOATS)
        if self._use_tensor_cores:
            # Left to itself, the real one takes fa2 for all but fp8.
            fa2 = self._backend == "fa2" or (self._backend == "auto" and kv_dtype in FLOATS)
            require(fa2, f"the backend must be fa2, not {self._backend}")
        else:
            known = shape.group in GROUPS
            require(known, f"without tensor cores there is no kernel for groups of {shape.group}")
        plan = Plan(
            list(range(pages.count + 1)),
            shape,
            Scoring(
                False,
                head_dim**-0.5 if sm_scale is None else sm_scale,
                window_left,
                logits_soft_cap or 0.0,
            ),
            q_dtype,
            kv_dtype,
            float_type("o_data_type", o_data_type or q_dtype, FLOATS),
        )
        if self._buffers:
            require(not disable_split_kv, "disable_split_kv launches unplanned blocks in a graph")
            self._copy_into_buffers(plan, indptr, indices, last_page_len)
        # The real one's numbers say how blocks are launched; in a graph they must never change.
        launched = 0 if self._buffers else len(indices)
        self._plan_info = [pages.count, num_qo_heads, num_kv_heads, head_dim, launched]
        self._plan, self._pages, self._indices = plan, pages, indices

    def _copy_into_buffers(
        self,
        plan: Plan,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
    ) -> None:
        into_indptr, into_indices, into_last = self._buffers
        fits = len(last_page_len) == len(into_last)
        require(fits, f"the graph is for {len(into_last)} requests, not {len(last_page_len)}")
        require(len(indices) <= len(into_indices), f"{len(indices)} pages need a larger buffer")
        # All but the pages is part of what was captured.
        require(self._plan in (None, plan), f"a graph planned as {self._plan} cannot be {plan}")
        into_indptr.copy_(indptr)
        into_indices[: len(indices)].copy_(indices)
        into_last.copy_(last_page_len)

    def _planned_pages(self) -> Pages:
        if not self._buffers:
            return super()._planned_pages()
        assert self._plan is not None
        indptr, indices, last_page_len = self._buffers
        used = indices[: int(indptr[-1])]
        return take_pages(indptr, used, last_page_len, self._plan.shape.page_size)


class BatchDecodeWithPagedKVCacheWrapper(Decode):
    """With a backend, which must be given."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        require(backend == "fa2", f"the backend must be fa2, not {backend}")
        buffers = (paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer)
        given = [buffer for buffer in buffers if buffer is not None]
        require(len(given) == (3 if use_cuda_graph else 0), "a graph needs its three buffers")
        super().__init__(float_workspace_buffer, kv_layout, backend, use_tensor_cores, given)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(Decode):
    """With fixed buffers. Its constructor takes no backend: with fp8 the caller sets it."""

    def __init__(
        self,
        workspace_buffer: torch.Tensor,
        indptr_buffer: torch.Tensor,
        indices_buffer: torch.Tensor,
        last_page_len_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_tensor_cores: bool = False,
    ) -> None:
        buffers = [indptr_buffer, indices_buffer, last_page_len_buffer]
        super().__init__(workspace_buffer, kv_layout, "auto", use_tensor_cores, buffers)
