"""Where a model's tensors come from: the safetensors files of a folder, by their names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from radix_engine.model.config import read_json
from radix_engine.model.errors import ModelError
from radix_engine.model.weights import MatrixSource, QuantizedBlocks


class TensorFiles(Protocol):
    """A model's tensors by the names that Hugging Face models give them.

    Both methods raise ModelError, naming the tensor, when it is missing, has another shape or
    cannot be read.
    """

    def matrix(self, name: str, rows: int, columns: int) -> MatrixSource:
        """The matrix of this name [rows, columns], not read yet."""
        ...

    def vector(self, name: str, length: int) -> torch.Tensor:
        """The vector of this name: float32 [length], of its own memory."""
        ...


@dataclass(frozen=True, slots=True)
class TensorMatrix:
    """A matrix that is a tensor already, as a rule mapped from its file."""

    tensor: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.tensor.shape
        return rows, columns

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        return self.tensor.to(dtype)

    def blocks(self) -> QuantizedBlocks | None:
        return None


class SafetensorsFiles:
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

    def matrix(self, name: str, rows: int, columns: int) -> MatrixSource:
        return TensorMatrix(self._get(name, (rows, columns)))

    def vector(self, name: str, length: int) -> torch.Tensor:
        return self._get(name, (length,)).to(torch.float32, copy=True)

    def _get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if name not in self._file_of:
            raise ModelError(f"tensor {name} is missing from the weights in {self.folder}")
        try:
            tensor: torch.Tensor = self._open(self._file_of[name]).get_tensor(name)
        except SafetensorError as error:
            raise ModelError(
                f"tensor {name} cannot be read from {self.folder / self._file_of[name]}: {error}"
            ) from error
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"tensor {name} has the shape {list(tensor.shape)}, "
                f"but config.json asks for {list(shape)}"
            )
        if not tensor.is_floating_point():
            raise ModelError(f"tensor {name} holds {tensor.dtype}, not floating-point numbers")
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
