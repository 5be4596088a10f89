"""Rotary position embedding (Su et al., RoFormer, 2021), in the half-split form of Llama."""

from __future__ import annotations

import math

import torch

from radix_engine.model.config import ModelConfig


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """Radians per position of each pair of dimensions, scaling applied: float32 [head_dim / 2].

    The "llama3" rule is the one published with Llama 3.1: wavelengths below original context /
    high_freq_factor stay, those above original context / low_freq_factor are stretched by
    ``factor``, and between the two the frequency passes linearly from one to the other.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "factors":
        return frequencies / torch.tensor(scaling.factors, dtype=torch.float32)
    if scaling.kind == "llama3":
        turns = scaling.original_context_length * frequencies / (2 * math.pi)
        kept = (turns - scaling.low_freq_factor) / (
            scaling.high_freq_factor - scaling.low_freq_factor
        )
        kept = kept.clamp(0.0, 1.0)
        return kept * frequencies + (1 - kept) * frequencies / scaling.factor
    return frequencies


def rotation(
    positions: torch.Tensor, frequencies: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and signed sines for ``rotate``, float32 [tokens, 1, head_dim]."""
    angles = positions.to(torch.float32).unsqueeze(1) * frequencies
    cosines, sines = angles.cos(), angles.sin()
    return (
        torch.cat((cosines, cosines), dim=-1).unsqueeze(1),
        torch.cat((-sines, sines), dim=-1).unsqueeze(1),
    )


def rotate(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotate [tokens, heads, head_dim] to its positions, in float32; returns that dtype."""
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    return torch.addcmul(heads * cosines, swapped, sines)
