"""A model with a real tokenizer, a long context and random weights: for measuring what texts cost.

It is as fast as a small model is, and its K and V take so little memory that several prompts of
128k tokens fit.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch

from radix_engine.model.source import ModelFolder

CONTEXT_TOKENS = 1 << 18
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM = 8, 512, 1408, 8, 1, 64
# bf16, K and V
KV_BYTES_PER_TOKEN = LAYERS * KV_HEADS * HEAD_DIM * 2 * 2

_COPIED = ("tokenizer*", "special_tokens_map.json", "chat_template*", "generation_config.json")
_SCALE = 0.02


def write_model(folder: ModelFolder, target: Path) -> Path:
    """Write such a model with the tokenizer of ``folder`` into ``target`` and return that. Takes
    about a second."""
    from safetensors.torch import save_file

    target.mkdir(parents=True, exist_ok=True)
    for pattern in _COPIED:
        for file in folder.path.glob(pattern):
            shutil.copy(file, target)
    vocabulary = json.loads((folder.path / "config.json").read_text())["vocab_size"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": vocabulary,
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1_000_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }
    (target / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    save_file(_weights(vocabulary), target / "model.safetensors", metadata={"format": "pt"})
    return target


def _weights(vocabulary: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.empty(rows, columns, dtype=torch.bfloat16).normal_(
            0.0, _SCALE, generator=generator
        )

    norm = torch.ones(HIDDEN, dtype=torch.bfloat16)
    tensors = {"model.embed_tokens.weight": matrix(vocabulary, HIDDEN), "model.norm.weight": norm}
    for index in range(LAYERS):
        layer = f"model.layers.{index}."
        tensors |= {
            f"{layer}input_layernorm.weight": norm.clone(),
            f"{layer}post_attention_layernorm.weight": norm.clone(),
            f"{layer}self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            f"{layer}self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"{layer}mlp.gate_proj.weight": matrix(INNER, HIDDEN),
            f"{layer}mlp.up_proj.weight": matrix(INNER, HIDDEN),
            f"{layer}mlp.down_proj.weight": matrix(HIDDEN, INNER),
        }
    return tensors
