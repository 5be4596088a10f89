"""The weights of a loaded model, in the form the forward pass uses."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from radix_engine.model.config import ModelConfig
from radix_engine.model.linear import Linear
from radix_engine.model.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. Norm weights are float32, matrices in the model's dtype.

    ``qkv`` yields the query heads, then the K heads, then the V heads; ``gate_up`` the gate, then
    the up projection. ``query_norm`` and ``key_norm`` [head_dim] are only there for Qwen3.
    """

    input_norm: torch.Tensor
    qkv: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run.

    ``embedding`` is [vocab_size, hidden_size], ``head`` yields logits. ``eos_token_ids`` end an
    answer; ``sampling`` is how its makers recommend to choose tokens. ``load_seconds`` is how long
    loading took.
    """

    name: str
    config: ModelConfig
    dtype: torch.dtype
    device: torch.device
    eos_token_ids: frozenset[int]
    sampling: SamplingParams
    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: Linear
    load_seconds: float
