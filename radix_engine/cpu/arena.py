"""Memory for weights: few large pieces, in the kernel's large pages where it has them."""

from __future__ import annotations

import contextlib
import mmap

import torch

_ALIGNMENT = 64
_PIECE = 64 * 2**20


class Arena:
    """Hands out memory that lives as long as the tensors on it."""

    def __init__(self) -> None:
        self._piece = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def take(self, size: int) -> torch.Tensor:
        """Zeroed memory of ``size`` bytes on a boundary of 64: uint8 [size]. Raises OSError."""
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        if start + size > len(self._piece):
            self._piece = _map(max(_PIECE, size))
            start = 0
        self._used = start + size
        return self._piece[start : self._used]


def _map(size: int) -> torch.Tensor:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Fewer misses in the table of pages; a kernel built without them refuses, and all is well.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
