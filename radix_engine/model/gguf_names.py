"""What the tensors of a GGUF file are called, and which a model has."""

from __future__ import annotations

import re

from radix_engine.model.config import ModelConfig

_LAYER_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")

ROPE_FACTORS = "rope_freqs.weight"
"""What each pair of dimensions' frequency is divided by; Llama 3.1 and later have it."""

# Rotary frequencies as some older files hold them; they follow from the metadata.
_IGNORED = re.compile(r"rope_freqs\.weight|blk\.\d+\.attn_rot_embd(\.weight)?")


def gguf_name(name: str) -> str:
    """The name in a GGUF file of what Hugging Face's models call ``name``."""
    stem, _, kind = name.rpartition(".")
    layer = _LAYER.fullmatch(stem)
    if layer:
        return f"blk.{layer[1]}.{_LAYER_PARTS[layer[2]]}.{kind}"
    return f"{_WHOLE[stem]}.{kind}"


def is_ignored(name: str) -> bool:
    """Whether a tensor of a GGUF file is no part of the weights."""
    return _IGNORED.fullmatch(name) is not None


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """All tensors of a model by the names that Hugging Face's models give them."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    matrices = {
        "self_attn.q_proj": (queries, hidden, config.qkv_bias),
        "self_attn.k_proj": (keys, hidden, config.qkv_bias),
        "self_attn.v_proj": (keys, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, queries, config.output_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    for index in range(config.num_layers):
        layer = f"model.layers.{index}."
        shapes[f"{layer}input_layernorm.weight"] = (hidden,)
        shapes[f"{layer}post_attention_layernorm.weight"] = (hidden,)
        for name, (rows, columns, biased) in matrices.items():
            shapes[f"{layer}{name}.weight"] = (rows, columns)
            if biased:
                shapes[f"{layer}{name}.bias"] = (rows,)
        if config.qk_norm:
            shapes[f"{layer}self_attn.q_norm.weight"] = (config.head_dim,)
            shapes[f"{layer}self_attn.k_norm.weight"] = (config.head_dim,)
    return shapes
