"""Loading a model: its files' tensors, packed matrix by matrix as a runner wants them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from radix_engine.model.config import ModelConfig, read_config, read_eos_token_ids, read_sampling
from radix_engine.model.gguf_files import GGUFFiles
from radix_engine.model.gguf_header import read_gguf_header
from radix_engine.model.source import ModelFolder
from radix_engine.model.tensor_files import SafetensorsFiles, TensorFiles
from radix_engine.model.weights import LayerWeights, LoadedModel, Packing, Role, TiedMatrix

M = TypeVar("M")

LoadProgress = Callable[[int, int], None]
"""Called with the number of layers loaded and the number of all."""


def load_model(
    folder: ModelFolder,
    packing: Packing[M],
    device: torch.device | None = None,
    progress: LoadProgress | None = None,
) -> LoadedModel[M]:
    """Load a model for the forward pass.

    Files are mapped into memory and read matrix by matrix; what was read is packed or copied at
    once, so beside the result at most one matrix exists a second time, and nothing of the files is
    in use afterwards. ``device`` (None: the CPU) is where the embedding and the norms go. Raises
    ModelError for an unsupported model and for missing or wrongly shaped tensors, naming them.
    """
    began = time.perf_counter()
    device = torch.device("cpu") if device is None else device
    config = read_config(folder.path)
    loader = _Loader(_open(folder, config), config, packing, device)
    with torch.inference_mode():
        source = loader.files.matrix(
            "model.embed_tokens.weight", config.vocab_size, config.hidden_size
        )
        embedding = source.dense(packing.dtype).to(device=device, copy=True)
        layers = []
        for index in range(config.num_layers):
            layers.append(loader.layer(index))
            if progress is not None:
                progress(index + 1, config.num_layers)
        norm = loader.norm("model.norm", config.hidden_size)
        if config.tied_embeddings:
            head = packing.pack("head", [TiedMatrix(embedding, source)], None)
        else:
            head = loader.packed("head", ["lm_head"], [config.vocab_size], config.hidden_size)
    return LoadedModel(
        name=folder.name,
        config=config,
        dtype=packing.dtype,
        device=device,
        eos_token_ids=read_eos_token_ids(folder.path),
        sampling=read_sampling(folder.path),
        embedding=embedding,
        layers=tuple(layers),
        norm=norm,
        head=head,
        load_seconds=time.perf_counter() - began,
    )


def _open(folder: ModelFolder, config: ModelConfig) -> TensorFiles:
    if folder.weights is None:
        return SafetensorsFiles(folder.path)
    return GGUFFiles(folder.weights, read_gguf_header(folder.weights), config)


class _Loader(Generic[M]):
    """Reads the parts of a decoder by their names and packs them."""

    def __init__(
        self, files: TensorFiles, config: ModelConfig, packing: Packing[M], device: torch.device
    ) -> None:
        self.files = files
        self.config = config
        self.packing = packing
        self.device = device

    def norm(self, name: str, length: int) -> torch.Tensor:
        return self.files.vector(f"{name}.weight", length).to(self.device)

    def packed(
        self, role: Role, names: list[str], rows: list[int], columns: int, bias: bool = False
    ) -> M:
        """One matrix out of several that share their input, outputs one after another."""
        pairs = list(zip(names, rows, strict=True))
        parts = [self.files.matrix(f"{name}.weight", count, columns) for name, count in pairs]
        biases = [self.files.vector(f"{name}.bias", count) for name, count in pairs if bias]
        return self.packing.pack(role, parts, torch.cat(biases) if biases else None)

    def layer(self, index: int) -> LayerWeights[M]:
        config = self.config
        prefix = f"model.layers.{index}."
        attention = f"{prefix}self_attn."
        hidden, inner = config.hidden_size, config.intermediate_size
        query_rows = config.num_heads * config.head_dim
        kv_rows = config.num_kv_heads * config.head_dim
        query_norm = key_norm = None
        if config.qk_norm:
            query_norm = self.norm(f"{attention}q_norm", config.head_dim)
            key_norm = self.norm(f"{attention}k_norm", config.head_dim)
        return LayerWeights(
            input_norm=self.norm(f"{prefix}input_layernorm", hidden),
            qkv=self.packed(
                "qkv",
                [f"{attention}{part}_proj" for part in ("q", "k", "v")],
                [query_rows, kv_rows, kv_rows],
                hidden,
                config.qkv_bias,
            ),
            query_norm=query_norm,
            key_norm=key_norm,
            output=self.packed(
                "output", [f"{attention}o_proj"], [hidden], query_rows, config.output_bias
            ),
            mlp_norm=self.norm(f"{prefix}post_attention_layernorm", hidden),
            gate_up=self.packed(
                "gate_up",
                [f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj"],
                [inner, inner],
                hidden,
                config.mlp_bias,
            ),
            down=self.packed("down", [f"{prefix}mlp.down_proj"], [hidden], inner, config.mlp_bias),
        )
