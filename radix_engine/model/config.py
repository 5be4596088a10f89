"""The shape of a Llama-family model, read from a Hugging Face ``config.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from radix_engine.model.errors import ModelError
from radix_engine.model.sampling_params import SamplingParams

SUPPORTED_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")

_REQUIRED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)

_SAMPLING_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched for long contexts.

    ``kind`` is "default" (not at all), "linear" (all frequencies divided by ``factor``), "llama3"
    (low frequencies divided, high ones kept, a smooth passage between, as published with Llama 3.1)
    or "factors" (each frequency divided by a number of its own in ``factors`` [head_dim / 2], as
    GGUF files have it). The three fields before ``factors`` belong to "llama3".
    """

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context_length: int = 0
    factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's sizes and variants. ``context_length`` is in tokens.

    ``windows`` has one entry a layer: with a sliding window of w tokens a query at position p sees
    the keys at p - w + 1 to p; None: all before it. Windows as long as the context are None.
    """

    model_type: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    context_length: int
    rms_eps: float
    rope_theta: float
    rope_scaling: RopeScaling
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]

    def kv_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of one token's K and V in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype.itemsize


def read_config(folder: Path) -> ModelConfig:
    """Read ``config.json`` in ``folder``.

    Raises ModelError for a missing or malformed file and for a model that the forward pass does
    not cover, naming the field.
    """
    return parse_config(read_json(folder / "config.json"))


def parse_config(raw: Mapping[str, Any]) -> ModelConfig:
    """The configuration in a parsed ``config.json``; errors as for ``read_config``."""
    model_type = raw.get("model_type")
    if model_type not in SUPPORTED_MODEL_TYPES:
        supported = ", ".join(SUPPORTED_MODEL_TYPES)
        raise ModelError(
            f"model_type {model_type!r} in config.json is not supported; supported: {supported}"
        )
    if raw.get("quantization_config"):
        raise ModelError(
            "quantized weights (quantization_config in config.json) are not supported; "
            "use the unquantized model or a .gguf file"
        )
    if (activation := raw.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise ModelError(f"hidden_act {activation!r} in config.json is not supported; only 'silu'")
    sizes = {field: _positive_int(raw, field) for field in _REQUIRED}
    heads = sizes["num_attention_heads"]
    context_length = sizes["max_position_embeddings"]
    kv_heads = _positive_int(raw, "num_key_value_heads", _default_kv_heads(model_type, heads))
    head_dim = _positive_int(raw, "head_dim", _default_head_dim(model_type, sizes))
    if heads % kv_heads:
        raise ModelError(
            f"num_attention_heads ({heads}) in config.json is not a multiple of "
            f"num_key_value_heads ({kv_heads})"
        )
    if head_dim % 2:
        raise ModelError(f"head_dim ({head_dim}) in config.json must be even for rotary positions")
    rope_theta, rope_scaling = _parse_rope(raw, context_length, head_dim)
    biased = bool(raw.get("attention_bias", False))
    return ModelConfig(
        model_type=model_type,
        num_layers=sizes["num_hidden_layers"],
        hidden_size=sizes["hidden_size"],
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=sizes["intermediate_size"],
        vocab_size=sizes["vocab_size"],
        context_length=context_length,
        rms_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=model_type == "qwen2" or (model_type in ("llama", "qwen3") and biased),
        output_bias=model_type in ("llama", "qwen3") and biased,
        mlp_bias=model_type == "llama" and bool(raw.get("mlp_bias", False)),
        qk_norm=model_type == "qwen3",
        windows=_parse_windows(raw, model_type, sizes["num_hidden_layers"], context_length),
    )


def read_eos_token_ids(folder: Path) -> frozenset[int]:
    """The ids that end an answer: of ``generation_config.json``, else of ``config.json``.

    Empty when neither names one. Raises ModelError for a malformed file.
    """
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            eos = read_json(folder / name).get("eos_token_id")
            ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
            if not all(isinstance(i, int) for i in ids):
                raise ModelError(f"eos_token_id in {folder / name} must be token ids, not {eos!r}")
            if ids:
                return frozenset(ids)
    return frozenset()


def read_sampling(folder: Path) -> SamplingParams:
    """How the model's makers would choose tokens, as ``generation_config.json`` says.

    What it leaves out, or the whole file, is plain sampling from the model's own distribution.
    Raises ModelError for a value out of range.
    """
    path = folder / "generation_config.json"
    raw = read_json(path) if path.is_file() else {}
    given = {name: raw[name] for name in _SAMPLING_FIELDS if raw.get(name) is not None}
    try:
        return SamplingParams(**given)
    except ValueError as error:
        raise ModelError(f"{path}: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ModelError when it is missing, unreadable or no object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} must hold a JSON object")
    return cast(dict[str, Any], value)


def _positive_int(raw: Mapping[str, Any], field: str, default: int | None = None) -> int:
    value = raw.get(field)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{field} in config.json must be a whole number above 0, not {value!r}")
    return value


def _default_kv_heads(model_type: str, heads: int) -> int:
    # What the published configurations of each family mean when they leave the field out.
    return {"mistral": 8, "qwen2": 32, "qwen3": 32}.get(model_type, heads)


def _default_head_dim(model_type: str, sizes: Mapping[str, int]) -> int:
    if model_type == "qwen3":
        return 128
    return sizes["hidden_size"] // sizes["num_attention_heads"]


def _parse_windows(
    raw: Mapping[str, Any], model_type: str, layers: int, context_length: int
) -> tuple[int | None, ...]:
    slides = _sliding_layers(raw, model_type, layers)
    # None is said by Mistral models without a window; one that says nothing has 4,096.
    if not any(slides) or ("sliding_window" in raw and raw["sliding_window"] is None):
        return (None,) * layers
    window = _positive_int(raw, "sliding_window", 4096)
    return tuple(window if here and window < context_length else None for here in slides)


def _sliding_layers(raw: Mapping[str, Any], model_type: str, layers: int) -> list[bool]:
    """Which layers have a sliding window, if the model has one."""
    if model_type == "mistral":
        return [True] * layers
    if model_type not in ("qwen2", "qwen3"):
        return [False] * layers
    enabled = bool(raw.get("use_sliding_window"))
    kinds = raw.get("layer_types")
    if kinds is None:
        first = raw.get("max_window_layers", 28)
        if not isinstance(first, int):
            raise ModelError(f"max_window_layers in config.json must be a number, not {first!r}")
        return [enabled and index >= first for index in range(layers)]
    known = {"full_attention": False, "sliding_attention": enabled}
    if not isinstance(kinds, list) or len(kinds) != layers or not set(kinds) <= known.keys():
        raise ModelError(
            f"layer_types in config.json must be full_attention or sliding_attention for each of "
            f"the {layers} layers, not {kinds!r}"
        )
    if "sliding_attention" in kinds and not enabled:
        raise ModelError(
            "layer_types in config.json asks for sliding_attention, but use_sliding_window is off"
        )
    return [known[kind] for kind in kinds]


def _parse_rope(
    raw: Mapping[str, Any], context_length: int, head_dim: int
) -> tuple[float, RopeScaling]:
    # Newer files hold everything in rope_parameters, older ones rope_theta beside rope_scaling.
    parameters = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(parameters, dict):
        raise ModelError(f"rope_parameters in config.json must be an object, not {parameters!r}")
    theta = float(parameters.get("rope_theta") or raw.get("rope_theta") or 10000.0)
    rotated = parameters.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    if rotated not in (None, 1, 1.0):
        raise ModelError(f"partial_rotary_factor {rotated!r} in config.json is not supported")
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    try:
        if kind == "default":
            return theta, RopeScaling()
        if kind == "linear":
            return theta, RopeScaling("linear", float(parameters["factor"]))
        if kind == "llama3":
            return theta, RopeScaling(
                "llama3",
                float(parameters["factor"]),
                float(parameters["low_freq_factor"]),
                float(parameters["high_freq_factor"]),
                int(parameters.get("original_max_position_embeddings") or context_length),
            )
        if kind == "factors":
            factors = tuple(float(factor) for factor in parameters["factors"])
            if len(factors) != head_dim // 2 or min(factors) <= 0:
                raise ModelError(f"rope factors must be {head_dim // 2} numbers above 0")
            return theta, RopeScaling("factors", factors=factors)
    except KeyError as error:
        raise ModelError(f"rope scaling {kind!r} in config.json lacks {error}") from None
    raise ModelError(
        f"rope scaling {kind!r} in config.json is not supported; supported: default, linear, llama3"
    )
