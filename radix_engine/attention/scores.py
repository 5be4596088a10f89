"""Attention over contiguous keys and values, with or without a cap on the scores."""

from __future__ import annotations

import torch
import torch.nn.functional as F

# Capped scores are held for this many queries at a time.
_QUERIES = 256


def attend_dense(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Softmax of the scores, times the values.

    ``queries`` [..., queries, head_dim], ``keys`` and ``values`` [..., keys, head_dim] with the
    same leading sizes. ``mask`` is added to the scores; ``causal`` instead hides key j from query i
    where j > i, for as many keys as queries. ``scale`` and ``softcap``: see `AttentionPlan.attend`.
    Without a cap torch's fused attention runs; it knows none, so that capped scores are computed
    plainly, in float32, in memory for the scores of 256 queries.
    """
    if softcap is None:
        return F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=causal, scale=scale
        )
    if scale is None:
        scale = queries.shape[-1] ** -0.5
    keys, float_values = keys.float(), values.float()
    pieces = []
    for begin in range(0, queries.shape[-2], _QUERIES):
        end = min(begin + _QUERIES, queries.shape[-2])
        seen = end if causal else keys.shape[-2]
        scores = queries[..., begin:end, :].float() @ keys[..., :seen, :].mT
        scores = scores.mul_(scale / softcap).tanh_().mul_(softcap)
        if causal:
            hidden = torch.ones(end - begin, seen, dtype=torch.bool, device=scores.device)
            scores.masked_fill_(hidden.triu_(begin + 1), float("-inf"))
        elif mask is not None:
            scores += mask if mask.shape[-2] == 1 else mask[..., begin:end, :]
        pieces.append(scores.softmax(dim=-1) @ float_values[..., :seen, :])
    return torch.cat(pieces, dim=-2).to(values.dtype)
