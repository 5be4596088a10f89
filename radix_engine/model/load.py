"""Loading weights from safetensors files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from radix_engine.model.config import (
    ModelConfig,
    read_config,
    read_eos_token_ids,
    read_json,
    read_sampling,
)
from radix_engine.model.errors import ModelError
from radix_engine.model.linear import Linear, can_pack, make_linear
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LayerWeights, LoadedModel

LoadProgress = Callable[[int, int], None]
"""Called with the number of layers loaded and the number of all."""


def load_model(
    folder: ModelFolder,
    dtype: torch.dtype,
    device: torch.device | None = None,
    progress: LoadProgress | None = None,
) -> LoadedModel:
    """Load a model for the forward pass.

    Files are mapped into memory and read layer by layer; what was read is packed or copied at once,
    so beside the result at most one layer exists a second time, and nothing of the files is in use
    afterwards. Raises ModelError for an unsupported model and for missing or wrongly shaped
    tensors, naming them.
    """
    began = time.perf_counter()
    device = torch.device("cpu") if device is None else device
    config = read_config(folder.path)
    files = TensorFiles(folder.path)
    reader = _Reader(files, dtype, device)
    with torch.inference_mode():
        embedding = reader.copied(
            "model.embed_tokens.weight", (config.vocab_size, config.hidden_size), dtype
        )
        layers = []
        for index in range(config.num_layers):
            layers.append(_load_layer(reader, config, index))
            if progress is not None:
                progress(index + 1, config.num_layers)
        norm = reader.norm("model.norm", config.hidden_size)
        if config.tied_embeddings:
            head = make_linear(embedding)
        else:
            head = reader.fused(["lm_head"], [config.vocab_size], config.hidden_size, bias=False)
    return LoadedModel(
        name=folder.name,
        config=config,
        dtype=dtype,
        device=device,
        eos_token_ids=read_eos_token_ids(folder.path),
        sampling=read_sampling(folder.path),
        embedding=embedding,
        layers=tuple(layers),
        norm=norm,
        head=head,
        load_seconds=time.perf_counter() - began,
    )


class TensorFiles:
    """The tensors of a folder: ``model.safetensors``, or the files of its sharded index.

    Raises ModelError when there are none, or when a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, Any] = {}
        self._file_of: dict[str, str] = {}
        index = folder / "model.safetensors.index.json"
        if (folder / "model.safetensors").is_file():
            self._file_of = dict.fromkeys(
                self._open("model.safetensors").keys(), "model.safetensors"
            )
        elif index.is_file():
            weight_map = read_json(index).get("weight_map")
            if not isinstance(weight_map, dict):
                raise ModelError(f"{index} lacks weight_map")
            self._file_of = {str(name): str(file) for name, file in weight_map.items()}
        else:
            raise ModelError(
                f"{folder} holds no weights: neither model.safetensors nor {index.name}"
            )

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def get(self, name: str) -> torch.Tensor:
        """The tensor of this name, mapped from its file."""
        if name not in self._file_of:
            raise ModelError(f"tensor {name} is missing from the weights in {self.folder}")
        try:
            tensor: torch.Tensor = self._open(self._file_of[name]).get_tensor(name)
        except SafetensorError as error:
            raise ModelError(
                f"tensor {name} cannot be read from {self.folder / self._file_of[name]}: {error}"
            ) from error
        return tensor

    def _open(self, file: str) -> Any:
        if file not in self._files:
            path = self.folder / file
            if not path.is_file():
                raise ModelError(f"{path} is missing, which the index of the weights names")
            try:
                self._files[file] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path} cannot be read: {error}") from error
        return self._files[file]


class _Reader:
    """Tensors by name, checked for their shape and brought to the model's dtype and device."""

    def __init__(self, files: TensorFiles, dtype: torch.dtype, device: torch.device) -> None:
        self.files = files
        self.dtype = dtype
        self.device = device

    def copied(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of its own memory."""
        return self._checked(name, shape).to(device=self.device, dtype=dtype, copy=True)

    def norm(self, name: str, length: int) -> torch.Tensor:
        return self.copied(f"{name}.weight", (length,), torch.float32)

    def fused(self, names: list[str], rows: list[int], columns: int, bias: bool) -> Linear:
        """One product in place of several that share their input, outputs one after another."""
        pairs = list(zip(names, rows, strict=True))
        weights = [self._converted(f"{name}.weight", (count, columns)) for name, count in pairs]
        biases = [self._converted(f"{name}.bias", (count,)) for name, count in pairs if bias]
        # Packing copies; else a single tensor must be copied out of the file, too.
        single = len(weights) == 1 and can_pack(self.dtype, self.device)
        return make_linear(
            weights[0] if single else torch.cat(weights), torch.cat(biases) if biases else None
        )

    def _converted(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        return self._checked(name, shape).to(device=self.device, dtype=self.dtype)

    def _checked(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = self.files.get(name)
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"tensor {name} has the shape {list(tensor.shape)}, "
                f"but config.json asks for {list(shape)}"
            )
        if not tensor.is_floating_point():
            raise ModelError(f"tensor {name} holds {tensor.dtype}, not floating-point numbers")
        return tensor


def _load_layer(reader: _Reader, config: ModelConfig, index: int) -> LayerWeights:
    prefix = f"model.layers.{index}."
    attention = f"{prefix}self_attn."
    hidden, inner = config.hidden_size, config.intermediate_size
    query_rows = config.num_heads * config.head_dim
    kv_rows = config.num_kv_heads * config.head_dim
    query_norm = key_norm = None
    if config.qk_norm:
        query_norm = reader.norm(f"{attention}q_norm", config.head_dim)
        key_norm = reader.norm(f"{attention}k_norm", config.head_dim)
    return LayerWeights(
        input_norm=reader.norm(f"{prefix}input_layernorm", hidden),
        qkv=reader.fused(
            [f"{attention}{part}_proj" for part in ("q", "k", "v")],
            [query_rows, kv_rows, kv_rows],
            hidden,
            config.qkv_bias,
        ),
        query_norm=query_norm,
        key_norm=key_norm,
        output=reader.fused([f"{attention}o_proj"], [hidden], query_rows, config.output_bias),
        mlp_norm=reader.norm(f"{prefix}post_attention_layernorm", hidden),
        gate_up=reader.fused(
            [f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj"],
            [inner, inner],
            hidden,
            config.mlp_bias,
        ),
        down=reader.fused([f"{prefix}mlp.down_proj"], [hidden], inner, config.mlp_bias),
    )
