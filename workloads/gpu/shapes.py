"""Models of a given shape with random weights: what needs no file."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from radix_engine.model.config import ModelConfig, RopeScaling
from radix_engine.model.linear import Linear, make_linear
from radix_engine.model.sampling_params import SamplingParams
from radix_engine.model.weights import LayerWeights, LoadedModel

LLAMA_8B_LAYERS = 32


@dataclass(frozen=True, slots=True)
class HeadShape:
    """``inner`` is the width of the activation."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    inner: int

    def __str__(self) -> str:
        return f"{self.num_heads}/{self.num_kv_heads} heads of {self.head_dim}"


HEAD_SHAPES = (HeadShape(32, 8, 128, 14336), HeadShape(9, 3, 64, 1536))
"""Llama-3.1-8B's, which decodes on tensor cores, and the default model's, which does not."""

_LLAMA_3_SCALING = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)


def llama_shape(
    *,
    num_layers: int = LLAMA_8B_LAYERS,
    hidden_size: int = 4096,
    num_heads: int = 32,
    num_kv_heads: int = 8,
    head_dim: int = 128,
    intermediate_size: int = 14336,
    vocab_size: int = 128256,
    context_length: int = 131072,
) -> ModelConfig:
    """A Llama 3.1's configuration; the defaults are those of the 8B model."""
    return ModelConfig(
        model_type="llama",
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=intermediate_size,
        vocab_size=vocab_size,
        context_length=context_length,
        rms_eps=1e-5,
        rope_theta=500000.0,
        rope_scaling=_LLAMA_3_SCALING,
        tied_embeddings=False,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        qk_norm=False,
        windows=(None,) * num_layers,
    )


def small_shape(shape: HeadShape) -> ModelConfig:
    """Two layers with these heads."""
    return llama_shape(
        num_layers=2,
        hidden_size=shape.num_heads * shape.head_dim,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.inner,
        vocab_size=8192,
        context_length=8192,
    )


@torch.inference_mode()
def random_model(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, seed: int
) -> LoadedModel[Linear]:
    """A model of plain Llama shape with normally distributed weights, made on the device.

    A matrix's weights have the variance 1 / inputs, so that numbers stay of the size of 1. Raises
    ValueError for a shape with biases or norms per head.
    """
    if config.qkv_bias or config.output_bias or config.mlp_bias or config.qk_norm:
        raise ValueError("random weights are made for a plain Llama shape only")
    generator = torch.Generator(device).manual_seed(seed)

    def normal(rows: int, columns: int, deviation: float) -> torch.Tensor:
        weight = torch.empty(rows, columns, dtype=dtype, device=device)
        return weight.normal_(0.0, deviation, generator=generator)

    def linear(outputs: int, inputs: int) -> Linear:
        return make_linear(normal(outputs, inputs, inputs**-0.5))

    def norm() -> torch.Tensor:
        return torch.ones(config.hidden_size, device=device)

    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    all_heads = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    layers = tuple(
        LayerWeights(
            input_norm=norm(),
            qkv=linear(all_heads, hidden),
            query_norm=None,
            key_norm=None,
            output=linear(hidden, queries),
            mlp_norm=norm(),
            gate_up=linear(2 * inner, hidden),
            down=linear(hidden, inner),
        )
        for _ in range(config.num_layers)
    )
    return LoadedModel(
        name="random weights",
        config=config,
        dtype=dtype,
        device=device,
        eos_token_ids=frozenset(),
        sampling=SamplingParams(),
        embedding=normal(config.vocab_size, hidden, 1.0),
        layers=layers,
        norm=norm(),
        head=linear(config.vocab_size, hidden),
        load_seconds=0.0,
    )
