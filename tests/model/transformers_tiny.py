"""Tiny models made from transformers' own configuration classes, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

_SIZES: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT2_SIZES: dict[str, Any] = {
    "vocab_size": 256,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {"scale_attn_by_inverse_layer_idx": True},
    "gemma2": {
        "sliding_window": 8,
        "query_pre_attn_scalar": 40,
        "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 3.0,
    },
    "gemma3_text": {
        "sliding_window": 8,
        "query_pre_attn_scalar": 40,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "phi3": {"sliding_window": 8},
    "olmo2": {},
}
"""Families that run through transformers, each with what sets its attention apart."""

WINDOWS: dict[str, list[int | None]] = {
    "gpt2": [None] * 3,
    "gemma2": [8, None, 8, None],
    "gemma3_text": [8, None, 8, None],
    "phi3": [8] * 4,
    "olmo2": [None] * 4,
}


def tiny_config(model_type: str, **fields: Any) -> Any:
    """A configuration of four layers (GPT-2: three), 4 heads of 16, 256 token ids and positions."""
    from transformers import CONFIG_MAPPING

    sizes = _GPT2_SIZES if model_type == "gpt2" else _SIZES
    return CONFIG_MAPPING[model_type](**(sizes | FAMILIES.get(model_type, {}) | fields))


def write_tiny_model(path: Path, config: Any) -> Any:
    """Write a model with random weights into the folder ``path``, and return it."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # Larger than what training starts from, so that attention shows in the logits.
                parameter.normal_(0.0, 0.15)
    model.save_pretrained(path)
    return model.eval()
