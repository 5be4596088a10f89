"""A model's tensors in a GGUF file, read from where they lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import torch

from radix_engine.model.config import ModelConfig
from radix_engine.model.errors import ModelError
from radix_engine.model.gguf_blocks import BLOCK_KINDS, dequantize
from radix_engine.model.gguf_header import GGUFHeader, TensorInfo
from radix_engine.model.gguf_names import gguf_name, is_ignored, tensor_shapes
from radix_engine.model.weights import MatrixSource, QuantizedBlocks

_KINDS = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    30: "BF16",
}
"""ggml's numbers for the types of values that can be read."""

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_OWN_BLOCKS: dict[str, Literal["Q4_0", "Q4_1", "Q8_0"]] = {
    "Q4_0": "Q4_0",
    "Q4_1": "Q4_1",
    "Q8_0": "Q8_0",
}

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GGUFMatrix:
    """A matrix in a mapped GGUF file: ``data`` is uint8 [rows, bytes a row].

    ``heads``: None, or of how many heads the rows are that lie in the order of `unpaired`.
    """

    kind: str
    columns: int
    data: Bytes
    heads: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.data), self.columns

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        data = torch.from_numpy(self._in_order())
        if self.kind in _PLAIN:
            return data.view(_PLAIN[self.kind]).to(dtype)
        return dequantize(self.kind, data, dtype)

    def blocks(self) -> QuantizedBlocks | None:
        if (kind := _OWN_BLOCKS.get(self.kind)) is None:
            return None
        return QuantizedBlocks(kind, *self.shape, self._in_order())

    def _in_order(self) -> Bytes:
        return self.data if self.heads is None else unpaired(self.data, self.heads)


def unpaired(rows: Bytes, heads: int) -> Bytes:
    """The rows of Q or K in Hugging Face's order, out of the one of Llama's GGUF files.

    Those have the two rows that a rotation mixes next to each other; here all first ones of a head
    come before all second ones.
    """
    return np.ascontiguousarray(
        rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
    )


class GGUFFiles:
    """The tensors of a GGUF file by the names that Hugging Face's models give them.

    Looks at the descriptions of all tensors at once. Raises ModelError, naming the file and the
    tensor, when one is missing, is none of this model's, has another shape or a type that cannot be
    read, or lies beyond the end of the file.
    """

    def __init__(self, path: Path, header: GGUFHeader, config: ModelConfig) -> None:
        self.path = path
        self._tensors = header.tensors
        self._config = config
        self._paired = header.metadata.get("general.architecture") == "llama"
        self._mapped = map_file(path)
        expected = {gguf_name(name): shape for name, shape in tensor_shapes(config).items()}
        for name, shape in expected.items():
            check_tensor(path, self._found(name), shape, len(self._mapped))
        for name in self._tensors:
            if name not in expected and not is_ignored(name):
                raise ModelError(
                    f"tensor {name} in {path} is none that a {config.model_type} model has here, "
                    f"so the file is not served: its answers would be wrong without it"
                )

    def matrix(self, name: str, rows: int, columns: int) -> MatrixSource:
        info = self._found(gguf_name(name))
        check_tensor(self.path, info, (rows, columns), len(self._mapped))
        data = tensor_bytes(self._mapped, info)
        return GGUFMatrix(_KINDS[info.type_id], columns, data, self._heads(name))

    def vector(self, name: str, length: int) -> torch.Tensor:
        info = self._found(gguf_name(name))
        check_tensor(self.path, info, (length,), len(self._mapped))
        values = plain_values(self._mapped, info)
        if (heads := self._heads(name)) is not None:
            rows = unpaired(values.view(length, 1).view(torch.uint8).numpy(), heads)
            return torch.from_numpy(rows).view(torch.float32).view(length)
        return values

    def _found(self, name: str) -> TensorInfo:
        if name not in self._tensors:
            raise ModelError(f"tensor {name} is missing from {self.path}")
        return self._tensors[name]

    def _heads(self, name: str) -> int | None:
        if self._paired and ".q_proj." in name:
            return self._config.num_heads
        if self._paired and ".k_proj." in name:
            return self._config.num_kv_heads
        return None


def map_file(path: Path) -> Bytes:
    """The file's bytes, mapped; what is written to them stays in memory (nobody does)."""
    try:
        return cast(Bytes, np.memmap(path, np.uint8, mode="c"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def check_tensor(path: Path, info: TensorInfo, shape: tuple[int, ...], file_size: int) -> None:
    """Raise ModelError unless the tensor has this shape and can be read."""
    if info.type_id not in _KINDS:
        raise ModelError(
            f"tensor {info.name} in {path} is of the type {_type_name(info.type_id)}, which cannot "
            f"be read; supported: {', '.join(_KINDS.values())}"
        )
    if info.shape != shape:
        raise ModelError(
            f"tensor {info.name} in {path} has the shape {list(info.shape)}, but the file's "
            f"metadata asks for {list(shape)}"
        )
    kind = _KINDS[info.type_id]
    if len(shape) == 1 and kind not in _PLAIN:
        raise ModelError(f"tensor {info.name} in {path} is a vector of the type {kind}")
    if kind in BLOCK_KINDS and shape[-1] % BLOCK_KINDS[kind].weights:
        raise ModelError(
            f"tensor {info.name} in {path} has rows of {shape[-1]} values, which is no multiple of "
            f"the {BLOCK_KINDS[kind].weights} in a block of {kind}"
        )
    if info.offset + math.prod(shape[:-1]) * _row_bytes(info) > file_size:
        raise ModelError(f"{path} is cut short: it ends inside tensor {info.name}")


def tensor_bytes(mapped: Bytes, info: TensorInfo) -> Bytes:
    """A checked tensor's bytes where they lie: uint8 [rows, bytes a row]."""
    rows, row_bytes = math.prod(info.shape[:-1]), _row_bytes(info)
    return mapped[info.offset : info.offset + rows * row_bytes].reshape(rows, row_bytes)


def plain_values(mapped: Bytes, info: TensorInfo) -> torch.Tensor:
    """A checked vector's values: float32, of its own memory."""
    data = torch.from_numpy(tensor_bytes(mapped, info)[0])
    return data.view(_PLAIN[_KINDS[info.type_id]]).to(torch.float32, copy=True)


def _row_bytes(info: TensorInfo) -> int:
    kind, columns = _KINDS[info.type_id], info.shape[-1]
    if kind in _PLAIN:
        return columns * _PLAIN[kind].itemsize
    return columns // BLOCK_KINDS[kind].weights * BLOCK_KINDS[kind].bytes


def _type_name(type_id: int) -> str:
    from gguf import GGMLQuantizationType

    names: dict[int, str] = {member.value: member.name for member in GGMLQuantizationType}
    return names.get(type_id, f"number {type_id}")
