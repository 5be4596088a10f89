"""The fake flashinfer's softmax and samplers."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.gpu.fake_checks import check_index, require


def softmax(
    logits: torch.Tensor,
    temperature: torch.Tensor | float | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    """Probabilities, float32, of logits divided by the temperature."""
    require(logits.dim() == 2, f"logits must have two dimensions, not {logits.dim()}")
    warmth = _by_row("temperature", 1.0 if temperature is None else temperature, logits)
    require(bool((warmth > 0).all()), "a temperature must be above 0")
    return torch.softmax(logits.float() / warmth, dim=-1)


def top_p_sampling_from_probs(
    probs: torch.Tensor,
    top_p: torch.Tensor | float,
    indices: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
    return_valid: bool = False,
) -> Any:
    """Draw from the fewest tokens that hold ``top_p`` of the probability."""
    rows = _rows_of(probs, indices)
    kept = rows * _holds_share(rows, _by_row("top_p", top_p, rows))
    return _drawn(kept, generator, seed, offset, return_valid)


def top_k_sampling_from_probs(
    probs: torch.Tensor,
    top_k: torch.Tensor | int,
    indices: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
    return_valid: bool = False,
) -> Any:
    """Draw from the ``top_k`` likeliest tokens."""
    rows = _rows_of(probs, indices)
    kept = rows * _among_likeliest(rows, _by_row("top_k", top_k, rows))
    return _drawn(kept, generator, seed, offset, return_valid)


def min_p_sampling_from_probs(
    probs: torch.Tensor,
    min_p: torch.Tensor | float,
    indices: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
    return_valid: bool = False,
) -> Any:
    """Draw from the tokens at least ``min_p`` times as likely as the likeliest."""
    rows = _rows_of(probs, indices)
    share = _by_row("min_p", min_p, rows)
    require(bool(((share >= 0) & (share <= 1)).all()), "min_p must lie between 0 and 1")
    kept = rows * (rows >= share * rows.amax(dim=-1, keepdim=True))
    return _drawn(kept, generator, seed, offset, return_valid)


def top_k_top_p_sampling_from_probs(
    probs: torch.Tensor,
    top_k: torch.Tensor | int,
    top_p: torch.Tensor | float,
    indices: torch.Tensor | None = None,
    filter_apply_order: str = "top_k_first",
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Any = None,
    offset: Any = None,
    return_valid: bool = False,
) -> Any:
    """Draw by both rules: one after the other ("top_k_first"), or both on the same ("joint")."""
    require(filter_apply_order in ("top_k_first", "joint"), f"no order {filter_apply_order}")
    rows = _rows_of(probs, indices)
    kept = rows * _among_likeliest(rows, _by_row("top_k", top_k, rows))
    share = _by_row("top_p", top_p, rows)
    if filter_apply_order == "joint":
        kept = kept * _holds_share(rows, share)
    else:
        kept = kept / kept.sum(dim=-1, keepdim=True)
        kept = kept * _holds_share(kept, share)
    return _drawn(kept, generator, seed, offset, return_valid)


def _rows_of(probs: torch.Tensor, indices: torch.Tensor | None) -> torch.Tensor:
    """The checked distributions to draw from, one a draw."""
    require(probs.dim() == 2, f"probs must have two dimensions, not {probs.dim()}")
    require(len(probs) > 0, "there is no row to draw from")
    require(probs.is_contiguous(), "probs must be contiguous")
    rows = probs.float()
    require(not bool(rows.isnan().any()), "a probability is NaN")
    require(bool((rows >= 0).all()), "a probability is below 0")
    sums = rows.sum(dim=-1)
    require(bool((sums - 1).abs().max() < 1e-2), f"rows must add up to 1, not {sums.tolist()}")
    if indices is None:
        return rows
    check_index("indices", indices)
    inside = bool(((indices >= 0) & (indices < len(rows))).all())
    require(inside, f"indices must name rows below {len(rows)}")
    return rows[indices.long()]


def _by_row(name: str, value: torch.Tensor | float, rows: torch.Tensor) -> torch.Tensor:
    """A number for all rows, or one for each, as a column."""
    if not isinstance(value, torch.Tensor):
        return torch.full((len(rows), 1), float(value), device=rows.device)
    require(value.shape == (len(rows),), f"{name} must have {len(rows)} entries: {value.shape}")
    require(value.device == rows.device, f"{name} is on {value.device}, not {rows.device}")
    return value.float()[:, None]


def _among_likeliest(rows: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Whether fewer than ``top_k`` tokens of the row are likelier; ties stay together."""
    require(bool((top_k >= 1).all()), "top_k must be at least 1")
    place = top_k.long().clamp(max=rows.shape[1]) - 1
    lowest = rows.sort(dim=-1, descending=True).values.gather(1, place)
    return rows >= lowest


def _holds_share(rows: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Whether the likelier tokens of the row hold less than ``top_p`` together."""
    require(bool(((top_p > 0) & (top_p <= 1)).all()), "top_p must lie above 0 and up to 1")
    values, order = rows.sort(dim=-1, descending=True)
    before = values.double().cumsum(dim=-1) - values
    # The sum of a whole row may fall short of 1 by rounding; a top_p of 1 keeps all of it.
    kept = (before < top_p) | (top_p == 1)
    return torch.zeros_like(kept).scatter(1, order, kept)


def _drawn(
    rows: torch.Tensor,
    generator: torch.Generator | None,
    seed: Any,
    offset: Any,
    return_valid: bool,
) -> Any:
    """One token of each row, int32."""
    require((seed is None) == (offset is None), "seed and offset only go together")
    if seed is not None:
        generator = torch.Generator(rows.device)
        generator.manual_seed(hash((_number("seed", seed), _number("offset", offset))) % 2**63)
    drawn = torch.multinomial(rows, 1, generator=generator)[:, 0].to(torch.int32)
    if not return_valid:
        return drawn
    return drawn, torch.ones(len(rows), dtype=torch.bool, device=rows.device)


def _number(name: str, value: Any) -> int:
    """A seed or an offset: an int, or one in an int64 tensor, which a graph can read anew."""
    if isinstance(value, torch.Tensor):
        fits = value.dtype == torch.int64 and math.prod(value.shape) == 1
        require(fits, f"{name} must be one int64")
    return int(value)
