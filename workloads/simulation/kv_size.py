"""kv-size: how many bytes a token's K and V take, from a model's configuration, line by line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radix_engine.model.errors import ModelError
from radix_engine.model.gguf_header import read_gguf_header
from server.config.readers import size
from workloads.option_types import at_least, one_of, reading

NAME = "kv-size"
BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}


class ConfigError(Exception):
    """A configuration from which the size cannot be told; the message names the field."""


@dataclass(frozen=True, slots=True)
class KvSize:
    """Each layer keeps K and V of a token: so many heads of so many numbers each. ``remarks``: what
    the sum leaves out."""

    layers: int
    kv_heads: int
    head_size: int
    remarks: tuple[str, ...] = ()

    def bytes_a_token(self, dtype: str) -> float:
        """Bytes of one token's K and V in all layers."""
        return self.layers * 2 * self.kv_heads * self.head_size * BYTES[dtype]


def kv_size_of(config: Mapping[str, Any]) -> KvSize:
    """From the fields of a config.json. Raises ConfigError."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping):  # of a model that reads images, too
        return kv_size_of(inner)
    if config.get("kv_lora_rank"):
        raise ConfigError(
            f"kv_lora_rank is {config['kv_lora_rank']}: this model has latent attention (MLA), "
            "which keeps a compressed vector in place of K and V; heads do not tell its size"
        )
    layers = _whole(config, "num_hidden_layers", "n_layer", "num_layers")
    heads = _whole(config, "num_attention_heads", "n_head")
    kv_heads = heads
    if config.get("num_key_value_heads") is not None:
        kv_heads = _whole(config, "num_key_value_heads")
    elif config.get("multi_query") is True:
        kv_heads = 1
    if config.get("head_dim") is not None:
        head_size = _whole(config, "head_dim")
    else:
        hidden = _whole(config, "hidden_size", "n_embd")
        if hidden % heads:
            raise ConfigError(f"hidden_size {hidden} is not a multiple of {heads} heads")
        head_size = hidden // heads
    return KvSize(layers, kv_heads, head_size, tuple(_remarks(config, layers)))


def read_config(path: Path) -> Mapping[str, Any]:
    """The configuration at a path: a folder with a config.json, that file, or a .gguf file. Raises
    ConfigError."""
    if path.suffix == ".gguf":
        return _gguf_config(path)
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{file}: must be a JSON object")
    return config


_GGUF_FIELDS = {
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "hidden_size": "embedding_length",
    "head_dim": "attention.key_length",
    "kv_lora_rank": "attention.kv_lora_rank",
    "sliding_window": "attention.sliding_window",
}


def _gguf_config(path: Path) -> Mapping[str, Any]:
    """What the header of a .gguf file says, by the names of a config.json. Raises ConfigError."""
    try:
        metadata = read_gguf_header(path).metadata
    except (ModelError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    kind = metadata.get("general.architecture")
    config: dict[str, Any] = {}
    for field, name in _GGUF_FIELDS.items():
        value = metadata.get(f"{kind}.{name}")
        if isinstance(value, tuple):
            if len(set(value)) > 1:
                raise ConfigError(f"{path}: {kind}.{name} differs from layer to layer")
            value = value[0]
        config[field] = value
    return config


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The kv-size command with its options."""
    parser = commands.add_parser(
        NAME,
        help="bytes of K and V a token, from a model's configuration",
        description="Prints how many bytes of memory the K and V of a token take, and of more, "
        "with the arithmetic. Reads a config.json or the header of a .gguf file; loads no model.",
    )
    parser.add_argument(
        "config",
        type=Path,
        metavar="MODEL",
        help="a model's folder, its config.json, or a .gguf file",
    )
    parser.add_argument(
        "--dtype",
        type=one_of(BYTES),
        default="bf16",
        metavar="TYPE",
        help=f"of K and V, of {', '.join(BYTES)} (default %(default)s)",
    )
    parser.add_argument(
        "--tokens",
        type=at_least(1, whole=True),
        metavar="N",
        help="also the memory for so many tokens, such as a context",
    )
    parser.add_argument(
        "--memory",
        type=reading(size(1, 2**50)),
        metavar="SIZE",
        help="also how many tokens fit so much memory, written like 8GiB",
    )
    parser.add_argument(
        "--block-size",
        type=at_least(1, whole=True),
        default=16,
        metavar="N",
        help="tokens in a block (default %(default)s)",
    )
    return parser


def kv_size(
    config: Path, dtype: str, tokens: int | None, memory_bytes: int | None, block_size: int
) -> int:
    """Print the arithmetic; returns the exit status."""
    try:
        found = kv_size_of(read_config(config))
    except ConfigError as problem:
        print(f"{NAME}: {problem}", file=sys.stderr)
        return 2
    print("\n".join(lines(found, dtype, tokens, memory_bytes, block_size)), flush=True)
    return 0


def lines(
    found: KvSize, dtype: str, tokens: int | None, memory_bytes: int | None, block_size: int
) -> list[str]:
    """The arithmetic, a step a line."""
    each = found.bytes_a_token(dtype)
    shown = [
        f"layers        {found.layers:>12,}",
        "K and V       x          2",
        f"K/V heads     x {found.kv_heads:>10,}",
        f"head size     x {found.head_size:>10,}",
        f"bytes, {dtype:<6} x {BYTES[dtype]:>10g}",
        f"a token       = {each:>10,.0f} bytes = {_readable(each)}",
        f"a block of {block_size} tokens: {_readable(each * block_size)}",
    ]
    if tokens is not None:
        blocks = -(-tokens // block_size)
        whole = each * block_size * blocks
        shown.append(f"{tokens:,} tokens: {blocks:,} blocks, {_readable(whole)}")
    if memory_bytes is not None:
        blocks = int(memory_bytes // (each * block_size))
        fit = f"{blocks:,} blocks, {blocks * block_size:,} tokens"
        shown.append(f"{_readable(memory_bytes)}: {fit}")
    return [*shown, *found.remarks]


def _remarks(config: Mapping[str, Any], layers: int) -> list[str]:
    """What makes the sum more, or less, than a server needs."""
    found = []
    window = config.get("sliding_window")
    if type(window) is int and config.get("use_sliding_window", True):
        kinds = config.get("layer_types")
        some = (
            f"{kinds.count('sliding_attention')} of {layers} layers"
            if isinstance(kinds, list)
            else "layers"
        )
        found.append(
            f"sliding window: {some} look back {window:,} tokens only; the sum is for a server "
            "that keeps all tokens in all layers, and one that drops the others needs less"
        )
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        others = sorted(set(kinds) - {"full_attention", "sliding_attention"})
        if others:
            raise ConfigError(
                f"layer_types has {', '.join(map(str, others))}: layers that keep a state in place "
                "of K and V; heads do not tell its size"
            )
    return found


def _whole(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 1:
            raise ConfigError(f"{name} must be a whole number from 1, is {value!r}")
        return value
    raise ConfigError(f"{names[0]} is missing: is this a language model's configuration?")


def _readable(count: float) -> str:
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= one:
            return f"{count / one:.4g} {unit}"
    return f"{count:g} bytes"
