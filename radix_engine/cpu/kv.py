"""K and V in the kernels' own layout: see kernels/kv.h."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from radix_engine.memory.kv_memory import check_copies, zeroed_memory


class CpuKVMemory:
    """K and V of ``num_blocks`` blocks: per layer uint8 [num_blocks, bytes of a block].

    Zeroed; addresses are taken at once, but the kernel supplies memory as blocks are first written.
    Raises ValueError for sizes below 1, OSError when the memory cannot be had.
    """

    def __init__(
        self, num_layers: int, num_blocks: int, block_size: int, layer_block_bytes: int
    ) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be at least 1, not {num_blocks}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.layers = tuple(
            zeroed_memory((num_blocks, layer_block_bytes), torch.uint8, torch.device("cpu"))
            for _ in range(num_layers)
        )

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

        The target's other rows are overwritten, too: nobody has computed them yet. In order. Raises
        ValueError for blocks or rows that do not exist. Cost: the bytes of the blocks.
        """
        check_copies(copies, self.num_blocks, self.block_size)
        for layer in self.layers:
            for source, target, _ in copies:
                if source != target:
                    layer[target] = layer[source]
