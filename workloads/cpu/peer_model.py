"""The model in the forms that peers read: a Hugging Face folder in bf16, OpenVINO's, the .gguf."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from radix_engine.model.load import load_model
from radix_engine.model.source import ModelFolder
from radix_engine.model.weights import LoadedModel, MatrixSource, Role
from workloads.cpu.peer_setup import SetupFailed, clean_environment, interpreter, run_logged

_COPIED = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template*",
)


@dataclass(frozen=True, slots=True)
class Parts:
    """Matrices whose outputs follow one another, and the bias of all of them (None: none)."""

    matrices: tuple[torch.Tensor, ...]
    bias: torch.Tensor | None


class Unpacked:
    """A packing that keeps every matrix as it was, in one dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def pack(self, role: Role, parts: Sequence[MatrixSource], bias: torch.Tensor | None) -> Parts:
        """The parts as dense tensors of their own."""
        # Copies: what is dense may be a view of a file.
        return Parts(tuple(part.dense(self.dtype).clone() for part in parts), bias)


def hugging_face_folder(folder: ModelFolder, build: Path, dtype: torch.dtype) -> Path:
    """The model as a folder of safetensors in ``dtype``, under ``build``; made once.

    Its weights are those that our own engine loads. Raises SetupFailed.
    """
    target = _model_folder(build, folder) / str(dtype).removeprefix("torch.")
    if (target / "model.safetensors").is_file():
        return target
    from safetensors.torch import save_file

    print(f"writing {folder.name} for the peers ({target})", file=sys.stderr, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        unfinished = Path(name) / "model"
        unfinished.mkdir()
        for pattern in _COPIED:
            for file in folder.path.glob(pattern):
                shutil.copy(file, unfinished)
        if not (unfinished / "config.json").is_file():
            raise SetupFailed(f"{folder.path} has no config.json that peers could read")
        config = json.loads((unfinished / "config.json").read_text())
        for key in ("quantization_config", "torch_dtype"):
            config.pop(key, None)
        config["dtype"] = str(dtype).removeprefix("torch.")
        (unfinished / "config.json").write_text(json.dumps(config, indent=2))
        model = load_model(folder, Unpacked(dtype))
        tensors = named_tensors(model, bool(config.get("tie_word_embeddings")))
        save_file(tensors, unfinished / "model.safetensors", metadata={"format": "pt"})
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
    return target


def named_tensors(model: LoadedModel[Parts], tied: bool) -> dict[str, torch.Tensor]:
    """All weights of a model under the names that Llama-family models have in transformers."""
    dtype = model.dtype
    tensors = {
        "model.embed_tokens.weight": model.embedding,
        "model.norm.weight": model.norm.to(dtype),
    }
    if not tied:
        tensors["lm_head.weight"] = model.head.matrices[0]
    for index, layer in enumerate(model.layers):
        prefix = f"model.layers.{index}"
        tensors[f"{prefix}.input_layernorm.weight"] = layer.input_norm.to(dtype)
        tensors[f"{prefix}.post_attention_layernorm.weight"] = layer.mlp_norm.to(dtype)
        for name, norm in (("q_norm", layer.query_norm), ("k_norm", layer.key_norm)):
            if norm is not None:
                tensors[f"{prefix}.self_attn.{name}.weight"] = norm.to(dtype)
        for names, parts in (
            (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), layer.qkv),
            (("self_attn.o_proj",), layer.output),
            (("mlp.gate_proj", "mlp.up_proj"), layer.gate_up),
            (("mlp.down_proj",), layer.down),
        ):
            tensors |= _split(prefix, names, parts, dtype)
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _split(
    prefix: str, names: Sequence[str], parts: Parts, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    found = {}
    row = 0
    for name, matrix in zip(names, parts.matrices, strict=True):
        found[f"{prefix}.{name}.weight"] = matrix
        rows = matrix.shape[0]
        if parts.bias is not None:
            found[f"{prefix}.{name}.bias"] = parts.bias[row : row + rows].to(dtype).clone()
        row += rows
    return found


def openvino_folder(folder: ModelFolder, source: Path, build: Path, log: Path) -> Path:
    """The model in OpenVINO's form with 16-bit weights, made of a Hugging Face folder; made once.

    Takes about a minute for a small model. Raises SetupFailed.
    """
    target = _model_folder(build, folder) / "openvino"
    if (target / "openvino_model.xml").is_file():
        return target
    print(f"openvino: converting {folder.name} (log: {log})", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        unfinished = Path(name) / "model"
        command = [str(interpreter(build, "openvino").with_name("optimum-cli"))]
        command += ["export", "openvino", "--model", str(source), "--weight-format", "fp16"]
        command += ["--task", "text-generation-with-past", str(unfinished)]
        run_logged(command, log, "openvino", clean_environment({"HF_HUB_OFFLINE": "1"}))
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
    return target


def gguf_file(folder: ModelFolder) -> Path:
    """The .gguf file that holds the model's weights. Raises SetupFailed where none does."""
    if folder.weights is None:
        raise SetupFailed(f"it reads .gguf files, and {folder.name} is none")
    return folder.weights


def _model_folder(build: Path, folder: ModelFolder) -> Path:
    return build / "peers" / "models" / folder.path.resolve().name
