"""FlashInfer's attention of decode steps that CUDA graphs repeat: all that it reads stays in place.

A graph's kernels read the addresses that they were recorded with. So the integers of every step,
whatever its size, are written to the same buffers, and each size has wrappers of its own over the
first so many entries of these. Nothing here has run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from radix_engine.attention.flashinfer_pages import StepPages, step_pages
from radix_engine.attention.flashinfer_wrappers import KV_LAYOUT, CudaMark, Heads, Mark
from radix_engine.attention.interface import AttentionPlan, AttentionSpan
from radix_engine.memory.kv_memory import KVMemory


class FlashInferGraphs:
    """Makes the attention of decode steps over ``memory`` of each size up to ``largest``.

    ``heads`` and ``windows`` are those of the model's layers, whose sequences have at most
    ``context_length`` tokens. All sizes share the buffers in here and the ``workspace``, which may
    be that of steps that are not recorded: one is planned and computed after the other, on one
    stream and by one thread.

    Takes 4 bytes of the device's memory, and of pinned memory of the host, for each block of
    ``largest`` whole contexts; each size takes 8 MiB of either for each window. ``mark`` is for
    tests.
    """

    def __init__(
        self,
        flashinfer: Any,
        memory: KVMemory,
        heads: Heads,
        windows: Collection[int | None],
        *,
        largest: int,
        context_length: int,
        workspace: torch.Tensor,
        mark: Mark | None = None,
    ) -> None:
        self.flashinfer = flashinfer
        self.memory = memory
        self.heads = heads
        self.windows = tuple(dict.fromkeys(windows))
        self.workspace = workspace
        self.device = memory.layers[0].device
        most_blocks = largest * -(-context_length // memory.block_size)
        self.host = _Integers(largest, most_blocks, torch.device("cpu"), self.device.type == "cuda")
        self.placed = _Integers(largest, most_blocks, self.device)
        self.rows = torch.arange(largest, dtype=torch.int32, device=self.device)
        self.mark = CudaMark(self.device) if mark is None and self.device.type == "cuda" else mark

    def attention(self, size: int) -> FlashInferGraphAttention:
        """That of steps of ``size`` sequences."""
        return FlashInferGraphAttention(self, size)

    def send(self, pages: StepPages) -> None:
        """Write a step's integers to the host's buffers, and positions and blocks to the device's.

        The host's hold a step until it has been copied: so long this waits, which is no time unless
        the host is two steps ahead of the device. Raises ValueError for more blocks than there is
        room for.
        """
        if len(pages.kv_indices) > len(self.host.kv_indices):
            raise ValueError(
                f"a step of {len(pages.kv_indices)} blocks is more than graphs have room for, "
                f"{len(self.host.kv_indices)}"
            )
        if self.mark is not None:
            self.mark.wait()
        used = self.host.fill(pages)
        self.placed.flat[:used].copy_(self.host.flat[:used], non_blocking=True)

    def sent(self) -> None:
        """All copies of the step, FlashInfer's own included, are queued."""
        if self.mark is not None:
            self.mark.set()


class _Integers:
    """A step's integers, in one tensor: where each array begins is the same for every step.

    ``indptr`` and ``last_page_len`` come last: FlashInfer copies them itself.
    """

    def __init__(
        self, largest: int, most_blocks: int, device: torch.device, pinned: bool = False
    ) -> None:
        # Each array begins at a multiple of 16 bytes.
        sequences = -(-(largest + 1) // 4) * 4
        self.flat = torch.zeros(
            sequences + most_blocks, dtype=torch.int32, device=device, pin_memory=pinned
        )
        self.positions = self.flat[:sequences]
        self.kv_indices = self.flat[sequences:]
        ends = torch.zeros(2 * sequences, dtype=torch.int32, device=device, pin_memory=pinned)
        self.kv_indptr, self.last_page_len = ends[:sequences], ends[sequences:]

    def fill(self, pages: StepPages) -> int:
        """Write a step's, on the host; returns how much of ``flat`` the device needs."""
        for target, values in (
            (self.positions, pages.positions),
            (self.kv_indices, pages.kv_indices),
            (self.kv_indptr, pages.kv_indptr),
            (self.last_page_len, pages.last_page_len),
        ):
            target[: len(values)].numpy()[:] = values
        return len(self.positions) + len(pages.kv_indices)


class FlashInferGraphAttention:
    """`GraphAttention` of steps of ``size`` sequences: one wrapper for each window of the model."""

    def __init__(self, shared: FlashInferGraphs, size: int) -> None:
        self._shared = shared
        self._size = size
        placed = shared.placed
        self._rows = shared.rows[:size]
        self._positions = placed.positions[:size]
        self._kv_indptr = placed.kv_indptr[: size + 1]
        self._last_page_len = placed.last_page_len[:size]
        self._wrappers: dict[int | None, Any] = {
            window: shared.flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(
                shared.workspace,
                self._kv_indptr,
                placed.kv_indices,
                self._last_page_len,
                KV_LAYOUT,
                use_tensor_cores=shared.heads.tensor_cores,
            )
            for window in shared.windows
        }
        for wrapper in self._wrappers.values():
            # Its constructor takes no backend, and with fp8 the automatic choice looks at the
            # device.
            wrapper._backend = "fa2"

    @property
    def plan_info(self) -> tuple[int, ...]:
        """What the launches of all wrappers were derived from in the latest plan."""
        return tuple(int(n) for wrapper in self._wrappers.values() for n in wrapper._plan_info)

    def plan(self, spans: Sequence[AttentionSpan]) -> AttentionPlan:
        """Prepare a step. Cost: a microsecond a span, a plan of FlashInfer's for each window, and 4
        bytes copied to the device a block.

        Raises ValueError as `Attention.plan` does, for other than ``size`` spans of one token, and
        for more blocks than `FlashInferGraphs` has room for.
        """
        shared, heads, size = self._shared, self._shared.heads, self._size
        pages = step_pages(spans, shared.memory.block_size, shared.memory.num_blocks)
        if not pages.decode_only or pages.num_spans != size:
            raise ValueError(
                f"this graph is of {size} spans of one token, not of {pages.num_spans} with "
                f"{pages.num_tokens} tokens"
            )
        shared.send(pages)
        for window, wrapper in self._wrappers.items():
            wrapper.plan(
                # Planned from on the host, then copied to the wrapper's buffers.
                shared.host.kv_indptr[: size + 1],
                # In the wrapper's buffer already, so its own copy of them moves nothing.
                shared.placed.kv_indices[: len(pages.kv_indices)],
                shared.host.last_page_len[:size],
                heads.num_heads,
                heads.num_kv_heads,
                heads.head_dim,
                heads.block_size,
                sm_scale=heads.head_dim**-0.5,
                # Kept though a context be shorter: a graph's kernels do not change.
                window_left=-1 if window is None else window - 1,
                # The defaults are fp16, whatever the tensors are.
                q_data_type=heads.dtype,
                kv_data_type=heads.kv_dtype,
            )
        shared.sent()
        return self

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """See `AttentionPlan.attend`. Raises ValueError for a scale, a soft cap and a window that
        is not one of the model's, and for tensors of another form than planned."""
        if scale is not None or softcap is not None or window not in self._wrappers:
            raise ValueError(
                f"graphs are planned for windows {self._shared.windows} and the usual scale, not "
                f"for a window of {window}, a scale of {scale} and a soft cap of {softcap}"
            )
        self._check("queries", queries, self._shared.heads.num_heads)
        self.write(layer, keys, values)
        attended: torch.Tensor = self._wrappers[window].run(
            queries, self._shared.memory.layers[layer]
        )
        return attended

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """See `AttentionPlan.write`. Raises ValueError as ``attend`` does."""
        self._check("keys", keys, self._shared.heads.num_kv_heads)
        self._check("values", values, self._shared.heads.num_kv_heads)
        self._shared.flashinfer.append_paged_kv_cache(
            *self._shared.heads.stored(keys, values),
            self._rows,
            self._positions,
            self._shared.memory.layers[layer],
            # Whole, as the step that is recorded does not tell how many blocks later ones have: the
            # kernel looks up `kv_indptr[row] + position // block_size` only, never their number.
            self._shared.placed.kv_indices,
            self._kv_indptr,
            self._last_page_len,
            kv_layout=KV_LAYOUT,
        )

    def _check(self, name: str, tensor: torch.Tensor, num_heads: int) -> None:
        heads = self._shared.heads
        shape = (self._size, num_heads, heads.head_dim)
        if (
            tensor.shape != shape
            or tensor.dtype != heads.dtype
            or tensor.device != self._shared.device
            or tensor.stride(-1) != 1
        ):
            raise ValueError(
                f"{name} must be {shape}, {heads.dtype}, on {self._shared.device} and contiguous "
                f"in the last dimension, not {tuple(tensor.shape)}, {tensor.dtype}, on "
                f"{tensor.device} with strides {tensor.stride()}"
            )
