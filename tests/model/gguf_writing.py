"""Tiny GGUF files, as their usual writers lay them out, from the folders of `tests.tiny`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, quants
from safetensors.torch import load_file

NAMES = {
    "model.embed_tokens.": "token_embd.",
    "model.norm.": "output_norm.",
    "lm_head.": "output.",
    "model.layers.": "blk.",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

Array = npt.NDArray[Any]


def write_gguf(
    file: Path,
    folder: Path,
    architecture: str = "llama",
    *,
    kind: str = "F32",
    kinds: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Array | None] | None = None,
) -> Path:
    """Write the model in ``folder`` as a GGUF file and return its path.

    Matrices are of ``kind``, or as ``kinds`` says for their names in the file. ``metadata`` and
    ``tensors`` (float32) replace values or add them; None takes one out. Rows of Q and K are
    interleaved for the architecture llama.
    """
    config = json.loads((folder / "config.json").read_text())
    writer: Any = gguf.GGUFWriter(file, architecture)
    for key, value in (_metadata(folder, config, architecture) | dict(metadata or {})).items():
        _add(writer, key, value)
    arrays: dict[str, Array | None] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        values = tensor.numpy()
        if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            heads = "num_attention_heads" if ".q_proj." in name else "num_key_value_heads"
            values = interleaved(values, config[heads])
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        arrays[name] = values
    for name, array in (arrays | dict(tensors or {})).items():
        if array is not None:
            wanted = (kinds or {}).get(name, kind if array.ndim == 2 else "F32")
            number = GGMLQuantizationType[wanted]
            data = quants.quantize(np.ascontiguousarray(array), number)
            writer.add_tensor(name, data, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def interleaved(values: Array, heads: int) -> Array:
    """Rows of Q or K with the two of a rotated pair next to each other, as Llama's files have them.

    Rows 0 and 1 of a head of 16 are its rows 0 and 8 in Hugging Face's order, and so on.
    """
    size = len(values) // heads
    order = [
        head * size + half * size // 2 + pair
        for head in range(heads)
        for pair in range(size // 2)
        for half in range(2)
    ]
    return values[order]


def _metadata(folder: Path, config: dict[str, Any], architecture: str) -> dict[str, Any]:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    tokens = dict(tokenizer["model"]["vocab"])
    tokens |= {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    special = {token["id"] for token in tokenizer["added_tokens"]}
    return {
        "general.name": "Tiny",
        f"{architecture}.block_count": config["num_hidden_layers"],
        f"{architecture}.context_length": config["max_position_embeddings"],
        f"{architecture}.embedding_length": config["hidden_size"],
        f"{architecture}.feed_forward_length": config["intermediate_size"],
        f"{architecture}.attention.head_count": config["num_attention_heads"],
        f"{architecture}.attention.head_count_kv": config["num_key_value_heads"],
        f"{architecture}.attention.key_length": config["head_dim"],
        f"{architecture}.attention.value_length": config["head_dim"],
        f"{architecture}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{architecture}.rope.dimension_count": config["head_dim"],
        f"{architecture}.rope.freq_base": config["rope_theta"],
        f"{architecture}.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": sorted(tokens, key=lambda token: tokens[token]),
        "tokenizer.ggml.token_type": [3 if i in special else 1 for i in range(len(tokens))],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in tokenizer["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": config["bos_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "tokenizer.chat_template": settings["chat_template"],
    }


def _add(writer: Any, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
