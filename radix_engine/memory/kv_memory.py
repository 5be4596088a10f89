"""The memory that holds K and V of all cached tokens, in blocks."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Sequence

import torch


class KVMemory:
    """K and V of ``num_blocks`` blocks, one tensor per layer, allocated once and zeroed.

    A layer's tensor has the shape [num_blocks, 2, block_size, num_kv_heads, head_dim]: K of a block
    at index 0 of the second dimension and V at index 1, each with tokens before heads (the layout
    that FlashInfer calls NHD). ``dtype`` is the model's, or `fp8.FP8`. On a CPU the addresses are
    taken at once, but the kernel supplies (zeroed) memory as blocks are first written, so a large
    memory costs no time at the start. Raises ValueError for sizes below 1, OSError or RuntimeError
    when the memory cannot be had.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        sizes = {
            "num_layers": num_layers,
            "num_blocks": num_blocks,
            "block_size": block_size,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
        }
        for field, value in sizes.items():
            if value < 1:
                raise ValueError(f"{field} must be at least 1, not {value}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.dtype = dtype
        self.device = torch.device("cpu") if device is None else device
        shape = (num_blocks, 2, block_size, num_kv_heads, head_dim)
        self.layers: tuple[torch.Tensor, ...] = tuple(
            zeroed_memory(shape, dtype, self.device) for _ in range(num_layers)
        )

    @classmethod
    def of_layers(
        cls,
        shapes: Sequence[tuple[int, int]],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> KVMemory:
        """The memory of layers that may differ: (num_kv_heads, head_dim) of each, at least one."""
        if not shapes:
            raise ValueError("num_layers must be at least 1, not 0")
        single = [
            cls(1, num_blocks, block_size, heads, head_dim, dtype, device)
            for heads, head_dim in shapes
        ]
        memory = single[0]
        memory.layers = tuple(layer.layers[0] for layer in single)
        return memory

    @property
    def num_bytes(self) -> int:
        """Bytes of all layers together."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block's K and V in all layers."""
        return self.num_bytes // self.num_blocks

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy K and V of the first ``rows`` tokens of a block to another: (source, target, rows).

        In order: a block may be the target of a copy after having been a source. Raises ValueError
        for blocks or rows that do not exist. Cost: the bytes copied.
        """
        check_copies(copies, self.num_blocks, self.block_size)
        for layer in self.layers:
            for source, target, rows in copies:
                if source != target:
                    layer[target, :, :rows] = layer[source, :, :rows]

    def rows(self, layer: int) -> torch.Tensor:
        """A layer's memory as rows: a view [num_blocks * 2 * block_size, num_kv_heads, head_dim].

        The K of the token at offset ``o`` of block ``b`` is row ``2 * block_size * b + o``, its V
        the row ``block_size`` further on.
        """
        tensor = self.layers[layer]
        return tensor.view(-1, *tensor.shape[3:])


def check_copies(copies: Sequence[tuple[int, int, int]], num_blocks: int, block_size: int) -> None:
    """Raise ValueError for a copy (source, target, rows) of blocks or rows that do not exist."""
    for source, target, rows in copies:
        if not (0 <= source < num_blocks and 0 <= target < num_blocks):
            raise ValueError(f"blocks {source} and {target} must both lie below {num_blocks}")
        if not 0 < rows <= block_size:
            raise ValueError(f"rows must lie between 1 and {block_size}, not {rows}")


def zeroed_memory(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; on a CPU supplied by the kernel as pages are first written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch.zeros writes every byte, which takes a second per gigabyte or two.
    size = math.prod(shape) * dtype.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Fewer, larger pieces from the kernel; one built without them refuses, and all is well.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
