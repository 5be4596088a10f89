"""The fake flashinfer's softmax and filters.

It has none of the samplers, whose kernels read the first of the seeds only, and add the row's place
in the batch.
"""

from __future__ import annotations

import math

import torch

from tests.gpu.fake_checks import FLOATS, check_index, require


def softmax(
    logits: torch.Tensor,
    temperature: torch.Tensor | float | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    """Probabilities, float32, of logits divided by the temperature."""
    _check_rows("logits", logits)
    warmth = _by_row("temperature", 1.0 if temperature is None else temperature, logits)
    require(bool((warmth > 0).all()), "a temperature must be above 0")
    # The kernel multiplies by this, so it must not overflow, nor vanish.
    inverse = 1 / warmth
    usable = bool(((inverse > 0) & inverse.isfinite()).all())
    require(usable, f"no float32 kernel divides by {warmth.flatten().tolist()}")
    return torch.softmax(logits.float() * inverse, dim=-1)


def top_k_mask_logits(logits: torch.Tensor, top_k: torch.Tensor | int) -> torch.Tensor:
    """Minus infinity in place of all but the ``top_k`` largest; equals of the last of them stay."""
    _check_rows("logits", logits)
    require(logits.dtype in FLOATS, f"logits cannot be {logits.dtype}")
    if isinstance(top_k, torch.Tensor):
        check_index("top_k", top_k, len(logits))
    counts = _by_row("top_k", top_k, logits)
    require(bool((counts >= 1).all()), "top_k must be at least 1")
    place = counts.long().clamp(max=logits.shape[1]) - 1
    lowest = logits.sort(dim=-1, descending=True).values.gather(1, place)
    return logits.masked_fill(logits < lowest, -math.inf)


def top_p_renorm_probs(
    probs: torch.Tensor, top_p: torch.Tensor | float, is_deterministic: bool = False
) -> torch.Tensor:
    """The likeliest that reach ``top_p`` together, adding up to 1; 0 in place of all others. Equals
    of the last of them stay."""
    _check_rows("probs", probs)
    require(is_deterministic, "without is_deterministic a row's cut changes from run to run")
    rows = probs.float()
    require(bool((rows >= 0).all()), "a probability is below 0")
    sums = rows.sum(dim=-1)
    require(bool((sums - 1).abs().max() < 1e-2), f"rows must add up to 1, not {sums.tolist()}")
    share = _by_row("top_p", top_p, rows)
    require(bool(((share > 0) & (share <= 1)).all()), "top_p must lie above 0 and up to 1")
    values = rows.sort(dim=-1, descending=True).values
    reached = values.double().cumsum(dim=-1)
    place = (reached < share * reached[:, -1:]).sum(dim=-1, keepdim=True)
    kept = torch.where(rows >= values.gather(1, place.clamp(max=rows.shape[1] - 1)), rows, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


def _check_rows(name: str, rows: torch.Tensor) -> None:
    require(rows.dim() == 2, f"{name} must have two dimensions, not {rows.dim()}")
    require(len(rows) > 0, f"{name} must have a row")
    require(rows.is_contiguous(), f"{name} must be contiguous")
    require(not bool(rows.isnan().any()), f"{name} must have no NaN")


def _by_row(name: str, value: torch.Tensor | float, rows: torch.Tensor) -> torch.Tensor:
    """A number for all rows, or one for each, as a column."""
    if not isinstance(value, torch.Tensor):
        return torch.full((len(rows), 1), float(value), device=rows.device)
    require(value.shape == (len(rows),), f"{name} must have {len(rows)} entries: {value.shape}")
    require(value.device == rows.device, f"{name} is on {value.device}, not {rows.device}")
    return value.float()[:, None]
