"""The fake flashinfer's norms, rotations and activation, in float32."""

from __future__ import annotations

import math

import torch

from tests.gpu.fake_checks import (
    FLOATS,
    MORE_HEAD_DIMS,
    check_head_dim,
    check_index,
    check_vectors,
    require,
)


def rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    """Each row, of [tokens, hidden] or [tokens, heads, head_dim], to a mean square of 1."""
    require(input.dim() in (2, 3), f"input must have two or three dims, not {input.dim()}")
    _check_rows("input", input, weight)
    result = _normed(input.float(), weight, eps).to(input.dtype)
    if out is None:
        return result
    _check_rows("out", out, weight)
    require(out.shape == input.shape, f"out must be {input.shape}, not {out.shape}")
    return out.copy_(result)


def fused_add_rmsnorm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """Add ``input`` to ``residual``, then put the norm of the sum into ``input``; both in place."""
    require(input.dim() == 2, f"input must have two dimensions, not {input.dim()}")
    _check_rows("input", input, weight)
    _check_rows("residual", residual, weight)
    require(residual.shape == input.shape, f"{residual.shape} is not {input.shape}")
    require(input.data_ptr() != residual.data_ptr(), "input is the residual itself")
    total = input.float() + residual.float()
    residual.copy_(total)
    # The kernel norms the sum before it is rounded.
    input.copy_(_normed(total, weight, eps))


def _normed(rows: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    mean_square = (rows * rows).mean(dim=-1, keepdim=True)
    return rows / torch.sqrt(mean_square + eps) * weight.float()


def _check_rows(name: str, rows: torch.Tensor, weight: torch.Tensor) -> None:
    require(rows.dtype in FLOATS, f"{name} cannot be {rows.dtype}")
    require(rows.stride(-1) == 1, f"{name} must be contiguous in its last dimension")
    require(weight.dtype == rows.dtype, f"the weight is {weight.dtype}, {name} {rows.dtype}")
    fits = weight.shape == rows.shape[-1:] and weight.is_contiguous()
    require(fits, f"a weight of {tuple(weight.shape)} for rows of {rows.shape[-1]}")
    require(weight.device == rows.device, f"the weight is on {weight.device}, not {rows.device}")


def silu_and_mul(
    input: torch.Tensor, out: torch.Tensor | None = None, enable_pdl: bool | None = None
) -> torch.Tensor:
    """silu of the first half of each row, times the second half."""
    require(input.dtype in FLOATS, f"input cannot be {input.dtype}")
    require(input.is_contiguous(), "input must be contiguous")
    width = input.shape[-1]
    aligned = width % 2 == 0 and width // 2 * input.element_size() % 16 == 0
    require(aligned, f"half of {width} values is no whole number of 16 bytes")
    gate, up = input.float().chunk(2, dim=-1)
    result = (gate / (1 + torch.exp(-gate)) * up).to(input.dtype)
    if out is None:
        return result
    alike = out.shape == result.shape and out.dtype == result.dtype and out.is_contiguous()
    require(alike, f"out must be a contiguous {result.dtype} of {tuple(result.shape)}")
    return out.copy_(result)


def apply_rope_pos_ids_inplace(
    q: torch.Tensor,
    k: torch.Tensor,
    pos_ids: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> None:
    """Rotate queries and keys [tokens, heads, head_dim] to their positions, in place."""
    rotated = q.shape[-1] if rotary_dim is None else rotary_dim
    _rotate_both(q, k, pos_ids, _frequencies(rotated, rope_theta) / rope_scale, interleave)


def apply_llama31_rope_pos_ids_inplace(
    q: torch.Tensor,
    k: torch.Tensor,
    pos_ids: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> None:
    """The same, with slow frequencies slowed down by ``rope_scale`` as Llama 3.1 does."""
    plain = _frequencies(q.shape[-1] if rotary_dim is None else rotary_dim, rope_theta)
    turns = old_context_len * plain / (2 * math.pi)
    kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
    kept = kept.clamp(0, 1)
    _rotate_both(q, k, pos_ids, plain * kept + plain / rope_scale * (1 - kept), interleave)


def apply_rope_with_cos_sin_cache_inplace(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool = True,
) -> None:
    """The same by a table [positions, cosines then sines], of ``query`` [tokens, heads * size]."""
    table = cos_sin_cache
    require(table.dtype == torch.float32, f"the table must be float32, not {table.dtype}")
    require(table.dim() == 2 and table.is_contiguous(), "the table must be two-dimensional")
    require(query.dim() == 2 and key.dim() == 2, "query and key must be [tokens, heads * size]")
    check_index("positions", positions, len(query))
    inside = len(positions) == 0 or int(positions.max()) < len(table)
    require(inside, f"a position is beyond the table's {len(table)}")
    cosines, sines = table[positions.long()].chunk(2, dim=-1)
    _check_rotation(query.view(len(query), -1, head_size), key.view(len(key), -1, head_size))
    _check_positions(positions, table.shape[1], head_size)
    for rows in (query, key):
        _rotate(rows.view(len(rows), -1, head_size), cosines, sines, interleave=not is_neox)


def _frequencies(rotated: int, theta: float) -> torch.Tensor:
    steps = torch.arange(0, rotated, 2, dtype=torch.float64) / rotated
    return theta**-steps


def _rotate_both(
    q: torch.Tensor,
    k: torch.Tensor,
    pos_ids: torch.Tensor,
    frequencies: torch.Tensor,
    interleave: bool,
) -> None:
    _check_rotation(q, k)
    check_index("pos_ids", pos_ids, len(q))
    _check_positions(pos_ids, 2 * len(frequencies), q.shape[-1])
    angles = pos_ids.double()[:, None] * frequencies.to(pos_ids.device)
    for rows in (q, k):
        _rotate(rows, torch.cos(angles).float(), torch.sin(angles).float(), interleave)


def _check_rotation(q: torch.Tensor, k: torch.Tensor) -> None:
    require(q.dtype in FLOATS, f"q cannot be {q.dtype}")
    check_head_dim(q.shape[-1], MORE_HEAD_DIMS)
    check_vectors("q", q, q.dtype, q.shape[-1])
    check_vectors("k", k, q.dtype, q.shape[-1])
    require(len(q) == len(k), f"{len(k)} keys for {len(q)} queries")


def _check_positions(positions: torch.Tensor, rotated: int, head_dim: int) -> None:
    require(rotated % 2 == 0 and rotated <= head_dim, f"cannot rotate {rotated} of {head_dim}")
    require(len(positions) == 0 or int(positions.min()) >= 0, "a position is below 0")


def _rotate(
    rows: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, interleave: bool
) -> None:
    """Rotate pairs in place: neighbours when interleaved, else a value and the one half on."""
    half = cosines.shape[-1]
    rotated = rows[..., : 2 * half]
    if interleave:
        first, second = rotated[..., 0::2], rotated[..., 1::2]
    else:
        first, second = rotated[..., :half], rotated[..., half:]
    x, y = first.float(), second.float()
    cosines, sines = cosines[:, None], sines[:, None]
    # Both are read before either is written: for float32 ``x`` and ``y`` are the rows themselves.
    turned = x * cosines - y * sines, x * sines + y * cosines
    first.copy_(turned[0])
    second.copy_(turned[1])
