"""FlashInfer's wrappers: planned once for all layers that score alike, then run layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from radix_engine.attention.flashinfer_pages import IntArray, PageReads
from radix_engine.memory.fp8 import FP8, rounded

KV_LAYOUT = "NHD"

# From this many query heads a KV head on, tensor cores are the faster way to decode; the other way
# knows only the groups 1, 2, 3, 4, 6 and 8.
_TENSOR_CORE_GROUP = 4
# FlashInfer's merge gives each 16 bytes of a token's output a thread of one thread block.
_MERGE_BYTES = 16 * 1024

Run = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Heads:
    """What all layers have in common.

    ``dtype`` is that of a step's queries, keys and values, and of what attention returns. ``fp8``:
    the blocks hold K and V in `FP8` and not in ``dtype``.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    fp8: bool = False

    @property
    def kv_dtype(self) -> torch.dtype:
        """Of the blocks."""
        return FP8 if self.fp8 else self.dtype

    def stored(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A step's K and V as blocks hold them: FlashInfer's append copies bytes, of whatever dtype
        they are."""
        return rounded(keys, values) if self.fp8 else (keys, values)

    @property
    def tensor_cores(self) -> bool:
        """Whether decodes run on tensor cores."""
        return self.num_heads // self.num_kv_heads >= _TENSOR_CORE_GROUP

    @property
    def mergeable(self) -> bool:
        """Whether FlashInfer can merge two levels of a cascade."""
        return self.num_heads * self.head_dim * self.dtype.itemsize <= _MERGE_BYTES


class Scores(NamedTuple):
    """How a layer scores keys: see `AttentionPlan.attend`. Layers that do it alike share a plan."""

    scale: float
    window: int | None
    softcap: float | None


@dataclass(frozen=True, slots=True)
class PlacedReads:
    """`PageReads` where FlashInfer plans from: the indices on the device, the rest on the CPU."""

    qo_indptr: torch.Tensor
    kv_indptr: torch.Tensor
    kv_indices: torch.Tensor
    last_page_len: torch.Tensor


def place(
    arrays: list[IntArray], device: torch.device
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The arrays as tensors on the CPU, and again on ``device``, in one copy.

    To a CUDA device from pinned memory, so that the copy waits for nothing and nothing for it.
    """
    if device.type == "cpu":
        tensors = [torch.from_numpy(array) for array in arrays]
        return tensors, tensors
    # Each array begins at a multiple of 16 bytes.
    begins = np.cumsum([0, *(-(-len(array) // 4) * 4 for array in arrays)]).tolist()
    pinned = torch.empty(begins[-1], dtype=torch.int32, pin_memory=device.type == "cuda")
    flat = pinned.numpy()
    for array, begin in zip(arrays, begins, strict=False):
        flat[begin : begin + len(array)] = array
    moved = pinned.to(device, non_blocking=True)
    ranges = [
        slice(begin, begin + len(array)) for array, begin in zip(arrays, begins, strict=False)
    ]
    return [pinned[part] for part in ranges], [moved[part] for part in ranges]


def place_reads(levels: list[PageReads], device: torch.device) -> list[PlacedReads]:
    """Several levels, in one copy."""
    arrays = [
        array
        for level in levels
        for array in (level.qo_indptr, level.kv_indptr, level.kv_indices, level.last_page_len)
    ]
    host, moved = place(arrays, device)
    return [
        PlacedReads(host[i], host[i + 1], moved[i + 2], host[i + 3])
        for i in range(0, len(arrays), 4)
    ]


class Mark(Protocol):
    """A point in a device's work."""

    def set(self) -> None: ...

    def wait(self) -> None:
        """Until the device has reached the point set last; at once where none was set."""
        ...


class CudaMark:
    """A point in what is queued on the device's current stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def set(self) -> None:
        """Behind all that is queued now."""
        self._event.record(torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        """See `Mark.wait`."""
        self._event.synchronize()


class PlannedWrapper:
    """A wrapper that is not planned again while the copy of its last plan is under way.

    ``plan`` fills a pinned buffer and has it copied asynchronously. ``mark`` is None where there is
    no asynchronous copy.
    """

    def __init__(self, wrapper: Any, mark: Mark | None) -> None:
        self._wrapper = wrapper
        self._mark = mark

    def plan(self, *arguments: Any, **settings: Any) -> Run:
        """Plan a step; returns what runs it, layer by layer: (queries, a layer's memory)."""
        if self._mark is not None:
            self._mark.wait()
        self._wrapper.plan(*arguments, **settings)
        if self._mark is not None:
            self._mark.set()
        run: Run = self._wrapper.run
        return run


class WrapperSet:
    """All wrappers that one step needs, made when first asked for.

    A wrapper is 8 MiB of the device's memory, one of a cascade twice that. ``workspace`` may be
    shared with other sets that run on the same stream.
    """

    def __init__(self, flashinfer: Any, heads: Heads, workspace: torch.Tensor) -> None:
        self.step = 0
        self._flashinfer = flashinfer
        self._heads = heads
        self._workspace = workspace
        self._wrappers: dict[tuple[str, Scores], PlannedWrapper] = {}

    def take(self) -> int:
        """Begin a step; what was planned for the one before is void. Returns its number."""
        self.step += 1
        return self.step

    def decode(self, scores: Scores, reads: PlacedReads) -> Run:
        """Plan a step of one query a span."""

        def make() -> Any:
            return self._flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                self._workspace,
                KV_LAYOUT,
                use_tensor_cores=self._heads.tensor_cores,
                backend="fa2",
            )

        return self._wrapper("decode", scores, make).plan(
            reads.kv_indptr,
            reads.kv_indices,
            reads.last_page_len,
            *self._sizes(),
            **self._settings(scores),
        )

    def prefill(self, scores: Scores, reads: PlacedReads, longest: int) -> Run:
        """Plan a step of any queries, at most ``longest`` a span."""

        def make() -> Any:
            return self._flashinfer.BatchPrefillWithPagedKVCacheWrapper(
                self._workspace, KV_LAYOUT, backend="fa2"
            )

        return self._wrapper("prefill", scores, make).plan(
            reads.qo_indptr,
            reads.kv_indptr,
            reads.kv_indices,
            reads.last_page_len,
            *self._sizes(),
            causal=True,
            # Said, it need not be found out in a loop over the spans.
            max_token_per_sequence=longest,
            **self._settings(scores),
        )

    def cascade(self, scores: Scores, levels: list[PlacedReads]) -> Run:
        """Plan a step whose queries read the first level's pages together, the second's each their
        own."""

        def make() -> Any:
            cascade = self._flashinfer.MultiLevelCascadeAttentionWrapper(
                len(levels), self._workspace, KV_LAYOUT
            )
            for wrapper in cascade._batch_prefill_wrappers:
                # Its constructor takes no backend, and the automatic choice differs by device.
                wrapper._backend = "fa2"
            return cascade

        return self._wrapper("cascade", scores, make).plan(
            [level.qo_indptr for level in levels],
            [level.kv_indptr for level in levels],
            [level.kv_indices for level in levels],
            [level.last_page_len for level in levels],
            *self._sizes(),
            causal=True,
            **self._settings(scores),
        )

    def _wrapper(self, kind: str, scores: Scores, make: Callable[[], Any]) -> PlannedWrapper:
        key = (kind, scores)
        if key not in self._wrappers:
            device = self._workspace.device
            mark = CudaMark(device) if device.type == "cuda" else None
            self._wrappers[key] = PlannedWrapper(make(), mark)
        return self._wrappers[key]

    def _sizes(self) -> tuple[int, int, int, int]:
        heads = self._heads
        return heads.num_heads, heads.num_kv_heads, heads.head_dim, heads.block_size

    def _settings(self, scores: Scores) -> dict[str, Any]:
        return {
            "sm_scale": scores.scale,
            "window_left": -1 if scores.window is None else scores.window - 1,
            "logits_soft_cap": scores.softcap,
            # The defaults are fp16, whatever the tensors are.
            "q_data_type": self._heads.dtype,
            "kv_data_type": self._heads.kv_dtype,
        }
