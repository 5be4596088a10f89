"""Tiny model folders with random weights, for tests that need a model but no real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

VOCAB_SIZE = 512
IM_START, IM_END = 510, 511

_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MERGES = ("t h", "h e", "i n", "a n", "e r", "o n", "th e", "Ġ the", "in g", "Ġ a")


def make_tiny_folder(
    path: Path,
    model_type: str = "llama",
    *,
    tokenizer: bool = False,
    seed: int = 0,
    scale: float = 0.08,
    **overrides: Any,
) -> Path:
    """Write a model folder into ``path`` (made if it is missing) and return it.

    Two layers, 4 query and 2 KV heads of 16, hidden size 64, vocabulary 512, context 1,024, about
    140,000 weights drawn from ``seed``; ``overrides`` are fields of config.json. ``model_type`` is
    llama, mistral, qwen2 or qwen3. With ``tokenizer`` a byte-level tokenizer with a chat template
    lies there too, so that a whole server can run on the folder.
    """
    path.mkdir(parents=True, exist_ok=True)
    config = _config(model_type, overrides)
    _write(path / "config.json", config)
    _write(path / "generation_config.json", {"eos_token_id": IM_END, "bos_token_id": IM_START})
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        values = torch.randn(shape, generator=generator)
        tensors[name] = 1 + 0.1 * values if "norm" in name else scale * values
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    if tokenizer:
        write_tiny_tokenizer(path)
    return path


def tensor_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors that a folder with this configuration holds."""
    hidden, inner, vocab = (
        config["hidden_size"],
        config["intermediate_size"],
        config["vocab_size"],
    )
    head_dim = config["head_dim"]
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_key_value_heads"] * head_dim
    model_type = config["model_type"]
    biased = bool(config.get("attention_bias"))
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        shapes[f"{layer}input_layernorm.weight"] = (hidden,)
        shapes[f"{layer}post_attention_layernorm.weight"] = (hidden,)
        linears = {
            "self_attn.q_proj": (queries, hidden, biased or model_type == "qwen2"),
            "self_attn.k_proj": (keys, hidden, biased or model_type == "qwen2"),
            "self_attn.v_proj": (keys, hidden, biased or model_type == "qwen2"),
            "self_attn.o_proj": (hidden, queries, biased),
            "mlp.gate_proj": (inner, hidden, bool(config.get("mlp_bias"))),
            "mlp.up_proj": (inner, hidden, bool(config.get("mlp_bias"))),
            "mlp.down_proj": (hidden, inner, bool(config.get("mlp_bias"))),
        }
        for name, (rows, columns, has_bias) in linears.items():
            shapes[f"{layer}{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{layer}{name}.bias"] = (rows,)
        if model_type == "qwen3":
            shapes[f"{layer}self_attn.q_norm.weight"] = (head_dim,)
            shapes[f"{layer}self_attn.k_norm.weight"] = (head_dim,)
    return shapes


def write_tiny_tokenizer(path: Path) -> None:
    """Write a byte-level BPE tokenizer of 512 ids (bytes, a few merges, fillers, chat marks)."""
    alphabet = _byte_alphabet()
    vocab = {character: i for i, character in enumerate(alphabet)}
    for merge in _MERGES:
        vocab[merge.replace(" ", "")] = len(vocab)
    specials = {f"<|unused_{i}|>": i for i in range(len(vocab), IM_START)}
    specials |= {"<|im_start|>": IM_START, "<|im_end|>": IM_END}
    added = [
        {
            "id": i,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for content, i in specials.items()
    ]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    _write(
        path / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": vocab,
                "merges": [merge.split(" ") for merge in _MERGES],
            },
        },
    )
    _write(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|im_end|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": 1024,
            "chat_template": _CHAT_TEMPLATE,
        },
    )


def _config(model_type: str, overrides: dict[str, Any]) -> dict[str, Any]:
    classes = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    config: dict[str, Any] = {
        "architectures": [f"{classes.get(model_type, 'Llama')}ForCausalLM"],
        "model_type": model_type,
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": IM_START,
        "eos_token_id": IM_END,
        "dtype": "float32",
    }
    if model_type == "mistral":
        config["sliding_window"] = None
    return config | overrides


def _byte_alphabet() -> list[str]:
    """One printable character per byte, as byte-level BPE writes them (GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(byte if byte in printable else next(moved)) for byte in range(256)]


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")
