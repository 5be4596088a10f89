"""From a GGUF file's metadata to the config.json that says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from radix_engine.model.config import ModelConfig, parse_config
from radix_engine.model.errors import ModelError
from radix_engine.model.gguf_files import check_tensor, map_file, plain_values
from radix_engine.model.gguf_header import GGUFHeader, Scalar
from radix_engine.model.gguf_names import ROPE_FACTORS

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""The values of general.architecture that can be served. Mistral's files say llama."""

_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}


def config_of(path: Path, header: GGUFHeader) -> tuple[dict[str, Any], ModelConfig]:
    """What config.json says of the model in this file, and the same parsed.

    Raises ModelError, naming the file, for a model that the forward pass does not cover.
    """
    metadata = _Metadata(path, header)
    if metadata.architecture not in GGUF_ARCHITECTURES:
        raise ModelError(
            f"{path} holds a model of architecture {metadata.architecture!r}, which is not "
            f"supported; supported: {', '.join(GGUF_ARCHITECTURES)} (Mistral's files say llama)"
        )
    metadata.refuse_several("split.count", "is one part of several; merge them into one file")
    metadata.refuse_several(
        metadata.key("expert_count"), "holds a mixture of experts, which is not supported"
    )
    raw = _describe(metadata, header)
    try:
        return raw, parse_config(raw)
    except ModelError as error:
        raise ModelError(f"{path} cannot be served: {error}") from error


class _Metadata:
    """Values of the metadata by the short names that follow the architecture's."""

    def __init__(self, path: Path, header: GGUFHeader) -> None:
        self.path = path
        self.header = header
        self.architecture = str(header.metadata.get("general.architecture"))

    def key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def get(self, name: str) -> Scalar | None:
        """One value; that of all layers where the file has one for each and they agree."""
        value = self.header.metadata.get(self.key(name))
        if not isinstance(value, tuple):
            return value
        if len(set(value)) != 1:
            raise ModelError(
                f"{self.path} has another {self.key(name)} for each layer, which is not supported"
            )
        return value[0]

    def refuse_several(self, key: str, reason: str) -> None:
        if self.header.metadata.get(key, 0) not in (0, 1):
            raise ModelError(f"{self.path} {reason} ({key} {self.header.metadata[key]})")


def _describe(metadata: _Metadata, header: GGUFHeader) -> dict[str, Any]:
    tensors = header.tensors
    raw: dict[str, Any] = {field: metadata.get(name) for field, name in _SIZES.items()}
    for field, value in raw.items():
        if value is None:
            raise ModelError(f"{metadata.path} lacks {metadata.key(_SIZES[field])}")
    raw["num_key_value_heads"] = (
        metadata.get("attention.head_count_kv") or raw["num_attention_heads"]
    )
    raw["head_dim"] = _head_dim(metadata, raw)
    embedding = tensors.get("token_embd.weight")
    raw["vocab_size"] = metadata.get("vocab_size") or (embedding.shape[0] if embedding else 0)
    raw["rms_norm_eps"] = metadata.get("attention.layer_norm_rms_epsilon")
    if raw["rms_norm_eps"] is None:
        name = metadata.key("attention.layer_norm_rms_epsilon")
        raise ModelError(f"{metadata.path} lacks {name}")
    raw["rope_parameters"] = _rope(metadata, header, raw["head_dim"])
    raw["tie_word_embeddings"] = "output.weight" not in tensors
    raw["hidden_act"] = "silu"
    if metadata.architecture in ("llama", "qwen3"):
        raw["attention_bias"] = "blk.0.attn_q.bias" in tensors
    if metadata.architecture == "llama":
        raw["mlp_bias"] = "blk.0.ffn_gate.bias" in tensors
    raw["model_type"] = metadata.architecture
    raw |= _windows(metadata)
    raw["architectures"] = [_CLASSES[raw["model_type"]]]
    raw |= _special_tokens(header)
    return raw


def _head_dim(metadata: _Metadata, raw: dict[str, Any]) -> object:
    length = metadata.get("attention.key_length")
    if length is None:
        length = metadata.get("rope.dimension_count")
    if length is None:
        length = raw["hidden_size"] // raw["num_attention_heads"]
    for name in ("attention.value_length", "rope.dimension_count"):
        if metadata.get(name) not in (None, length):
            raise ModelError(
                f"{metadata.path} cannot be served: {metadata.key(name)} is {metadata.get(name)}, "
                f"but heads of {length} dimensions must have as many values, all rotated"
            )
    return length


def _rope(metadata: _Metadata, header: GGUFHeader, head_dim: Any) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": metadata.get("rope.freq_base") or 10000.0}
    kind = metadata.get("rope.scaling.type") or "linear"  # what a factor alone means
    if kind not in ("none", "linear"):
        raise ModelError(
            f"{metadata.path} cannot be served: {metadata.key('rope.scaling.type')} is {kind!r}; "
            f"supported: none, linear, and the factors in {ROPE_FACTORS}"
        )
    linear = metadata.get("rope.scaling.factor") or metadata.get("rope.scale_linear") or 1.0
    if kind == "none":
        linear = 1.0
    if ROPE_FACTORS in header.tensors:
        info, mapped = header.tensors[ROPE_FACTORS], map_file(metadata.path)
        check_tensor(metadata.path, info, (head_dim // 2,), len(mapped))
        factors = plain_values(mapped, info) * float(linear)
        return rope | {"rope_type": "factors", "factors": factors.tolist()}
    if linear != 1.0:
        return rope | {"rope_type": "linear", "factor": linear}
    return rope | {"rope_type": "default"}


def _windows(metadata: _Metadata) -> dict[str, Any]:
    """Sliding windows. Files seldom have them, since llama.cpp knows none for these models."""
    window = metadata.get("attention.sliding_window")
    pattern = metadata.header.metadata.get(metadata.key("attention.sliding_window_pattern"))
    if not window:
        return {}
    if metadata.architecture == "llama" and pattern is None:
        return {"model_type": "mistral", "sliding_window": window}
    if metadata.architecture != "llama" and isinstance(pattern, tuple):
        kinds = ["sliding_attention" if slides else "full_attention" for slides in pattern]
        return {"use_sliding_window": True, "sliding_window": window, "layer_types": kinds}
    if metadata.architecture != "llama" and pattern is None:
        return {}  # Qwen's own configurations name a window that is not in use
    raise ModelError(
        f"{metadata.path} cannot be served: "
        f"{metadata.key('attention.sliding_window_pattern')} is {pattern!r}"
    )


def _special_tokens(header: GGUFHeader) -> dict[str, Any]:
    def token(name: str) -> Any:
        return header.metadata.get(f"tokenizer.ggml.{name}_token_id")

    # The end of a turn ends an answer, too, where it is another token than the end of a text.
    ends = sorted({end for end in (token("eos"), token("eot")) if end is not None})
    found = {
        "bos_token_id": token("bos"),
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": token("padding"),
    }
    return {field: value for field, value in found.items() if value is not None}
