"""K and V in 8 bits: float8_e4m3fn, rounded before they are written, at half the memory of bf16.

The numbers are kept as they are (FlashInfer's scales of K and V stay 1), 3 bits behind the first
one, from 2**-9 up to 448; what is beyond becomes 448. That is what vLLM does without calibration,
too. A scale of a model's own would need measuring, and FlashInfer's cascades take none.
"""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0


def rounded(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V, [tokens, kv_heads, head_dim] each, in `FP8`: views into one new tensor.

    A NaN stays one. Only queues work on a device: three small kernels.
    """
    # Clamped, as not every torch that may be here does that by itself.
    both = torch.cat((keys, values), dim=1).clamp_(-FP8_MAX, FP8_MAX).to(FP8)
    return both[:, : keys.shape[1]], both[:, keys.shape[1] :]
