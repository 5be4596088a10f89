"""The weights of a model: the matrices of its files, and what a runner makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from radix_engine.model.config import ModelConfig
from radix_engine.model.sampling_params import SamplingParams

Role = Literal["qkv", "output", "gate_up", "down", "head"]
"""What a matrix is for: the five kinds of products of a Llama-family model."""

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


@dataclass(frozen=True, slots=True)
class QuantizedBlocks:
    """A matrix [rows, columns] in a GGUF file's own blocks of 32 weights along a row.

    ``data`` is uint8 [rows, bytes a row], block after block as GGUF lays them out, all numbers
    little-endian: Q4_0 has a float16 scale and 16 bytes of quants, Q4_1 a float16 scale, a float16
    minimum and 16 bytes, Q8_0 a float16 scale and 32 signed bytes. Byte i of 16 holds weight i of
    the block in its low half and weight i + 16 in its high one.
    """

    kind: Literal["Q4_0", "Q4_1", "Q8_0"]
    rows: int
    columns: int
    data: npt.NDArray[np.uint8]


class MatrixSource(Protocol):
    """A weight matrix [rows, columns] where it lies, as a rule in a mapped file."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        """The matrix, dequantized where needed; may be a view of what must not be written to."""
        ...

    def blocks(self) -> QuantizedBlocks | None:
        """The file's own blocks; None where it holds none of the kinds of `QuantizedBlocks`."""
        ...


class Packing(Protocol[M_co]):
    """How one runner wants its matrices laid out.

    ``pack`` is called once per matrix while a model is loaded. ``parts`` are matrices with the same
    columns whose outputs follow one another (q, k, v; gate, up; or one), ``bias`` is float32 [all
    outputs]. Nothing of the parts may be in use afterwards, save the tensor of a `TiedMatrix`.
    ``dtype`` is that of the embedding's rows.
    """

    @property
    def dtype(self) -> torch.dtype: ...

    def pack(
        self, role: Role, parts: Sequence[MatrixSource], bias: torch.Tensor | None
    ) -> M_co: ...


@dataclass(frozen=True, slots=True)
class TiedMatrix:
    """The source of a head that is the embedding again.

    ``dense`` yields the loaded embedding itself where the dtype agrees. That tensor belongs to the
    model, not to its files, so a packing may keep it.
    """

    embedding: torch.Tensor
    source: MatrixSource

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    def dense(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype == self.embedding.dtype:
            return self.embedding
        return self.source.dense(dtype)

    def blocks(self) -> QuantizedBlocks | None:
        return self.source.blocks()


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[M]):
    """One decoder layer. Norm weights are float32, matrices what the packing made of them.

    ``qkv`` yields the query heads, then the K heads, then the V heads; ``gate_up`` the gate, then
    the up projection. ``query_norm`` and ``key_norm`` [head_dim] are only there for Qwen3.
    """

    input_norm: torch.Tensor
    qkv: M
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    output: M
    mlp_norm: torch.Tensor
    gate_up: M
    down: M


@dataclass(frozen=True, slots=True)
class LoadedModel(Generic[M]):
    """A model that is ready to run.

    ``dtype`` is the packing's, ``embedding`` is [vocab_size, hidden_size] in it, ``head`` yields
    logits. ``eos_token_ids`` end an answer; ``sampling`` is how its makers recommend to choose
    tokens. ``load_seconds`` is how long loading took.
    """

    name: str
    config: ModelConfig
    dtype: torch.dtype
    device: torch.device
    eos_token_ids: frozenset[int]
    sampling: SamplingParams
    embedding: torch.Tensor
    layers: tuple[LayerWeights[M], ...]
    norm: torch.Tensor
    head: M
    load_seconds: float
