"""The forward pass of Llama-family models on a CPU: one call of the compiled kernels a step."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from radix_engine.cpu.kv import CpuKVMemory
from radix_engine.cpu.library import KV_TYPES, BatchStruct, Kernels, LayerStruct, ModelStruct
from radix_engine.cpu.packing import PackedMatrix
from radix_engine.model.batch import Span
from radix_engine.model.config import ModelConfig
from radix_engine.model.rope import inverse_frequencies
from radix_engine.model.weights import LoadedModel

BLOCK_SIZE = 16
"""Tokens of a block in the kernels' layout; there is no other."""


@dataclass(frozen=True, slots=True)
class LastStep:
    """How the step before ran: threads, and the seconds it took and those spent waiting."""

    threads: int
    seconds: float
    waited_seconds: float


class CpuRunner:
    """Runs a model's forward pass: spans of tokens in, logits out.

    Owns the weights and the KV memory (``num_blocks`` blocks of 16 tokens). The residual stream,
    norms, rotation, softmax and logits are float32. A token's K, V and logits are the same bits
    whatever was cached, however the prompt was cut, whoever shared the batch, and on any number of
    threads: every sum has one fixed order (kernels/product.h, kernels/attention.h). One thread at a
    time may call it.
    """

    def __init__(
        self,
        model: LoadedModel[PackedMatrix],
        kernels: Kernels,
        num_blocks: int,
        *,
        kv_type: str,
        threads: int,
        adaptive: bool = True,
    ) -> None:
        """``threads``: at most so many; with ``adaptive`` fewer while others need the processors.

        Raises ValueError or OSError when the KV memory cannot be had.
        """
        config = model.config
        self.model = model
        self.memory = CpuKVMemory(
            config.num_layers, num_blocks, BLOCK_SIZE, layer_block_bytes(kernels, config, kv_type)
        )
        self.threads = threads
        self._fixed_threads = 0 if adaptive else threads
        self._kernels = kernels
        self._frequencies = inverse_frequencies(config).contiguous()
        self._layers = (LayerStruct * config.num_layers)(
            *(self._layer(index) for index in range(config.num_layers))
        )
        struct = ModelStruct(
            layers=config.num_layers,
            hidden=config.hidden_size,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            inner=config.intermediate_size,
            vocab=config.vocab_size,
            kv_type=KV_TYPES[kv_type],
            eps=config.rms_eps,
            softcap=0.0,
            embedding=model.embedding.data_ptr(),
            embedding_halves=int(model.embedding.dtype == torch.bfloat16),
            frequencies=self._frequencies.data_ptr(),
            norm=model.norm.data_ptr(),
            layer=self._layers,
            head=model.head.struct(),
        )
        self._engine = kernels.engine_new(ctypes.byref(struct), threads)
        if not self._engine:
            raise OSError("the kernels could not start: no memory or no threads are left")

    def __del__(self) -> None:
        if getattr(self, "_engine", None):
            self._kernels.engine_free(self._engine)

    def copy_rows(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Before a step: copy K and V between blocks. See `CpuKVMemory`."""
        self.memory.copy_rows(copies)

    def forward(self, spans: Sequence[Span]) -> torch.Tensor:
        """Run one step.

        Writes the K and V of all tokens into their blocks and returns the logits after the last
        ``num_logits`` tokens of each span, in order: float32 [all of these, vocab_size]. A span may
        read blocks that another span of the step fills. Raises ValueError for an empty span, a
        block table that is too short, and ids, blocks or positions out of range.
        """
        config = self.model.config
        ids, tables = array("i"), array("i")
        numbers = np.empty((4, len(spans)), np.int64)
        for i, (tokens, start, table, num_logits) in enumerate(spans):
            end = start + len(tokens)
            blocks = -(-end // BLOCK_SIZE)
            _check(tokens, start, end, table, num_logits, config.context_length)
            numbers[:, i] = (start, len(tokens), num_logits, len(tables))
            ids.extend(tokens)
            tables.extend(table[:blocks])
        logits = torch.empty(int(numbers[2].sum()), config.vocab_size)
        if not spans:
            return logits
        all_ids, all_tables = np.asarray(ids), np.asarray(tables)
        if all_ids.min() < 0 or all_ids.max() >= config.vocab_size:
            raise ValueError(f"a token id lies outside 0 to {config.vocab_size - 1}")
        if all_tables.min() < 0 or all_tables.max() >= self.memory.num_blocks:
            raise ValueError(
                f"a block table names blocks outside 0 to {self.memory.num_blocks - 1}"
            )
        small = numbers[:3].astype(np.int32)
        batch = BatchStruct(
            tokens=len(ids),
            spans=len(spans),
            starts=small[0].ctypes.data,
            lengths=small[1].ctypes.data,
            logits=small[2].ctypes.data,
            tables=all_tables.ctypes.data,
            table_at=numbers[3].ctypes.data,
            ids=all_ids.ctypes.data,
            out=logits.data_ptr(),
        )
        status = self._kernels.engine_forward(
            self._engine, ctypes.byref(batch), self._fixed_threads
        )
        if status != 0:
            raise MemoryError(f"no memory for a step of {len(ids)} tokens")
        return logits

    def last_step(self) -> LastStep:
        """How the step before ran."""
        out = (ctypes.c_int64 * 3)()
        self._kernels.engine_last(self._engine, out)
        return LastStep(int(out[0]), out[1] / 1e9, out[2] / 1e9)

    def _layer(self, index: int) -> LayerStruct:
        layer = self.model.layers[index]
        return LayerStruct(
            qkv=layer.qkv.struct(),
            output=layer.output.struct(),
            gate_up=layer.gate_up.struct(),
            down=layer.down.struct(),
            input_norm=layer.input_norm.data_ptr(),
            mlp_norm=layer.mlp_norm.data_ptr(),
            query_norm=_pointer(layer.query_norm),
            key_norm=_pointer(layer.key_norm),
            kv=self.memory.layers[index].data_ptr(),
            window=self.model.config.windows[index] or 0,
        )


def layer_block_bytes(kernels: Kernels, config: ModelConfig, kv_type: str) -> int:
    """Bytes of a block's K and V in one layer."""
    return int(kernels.kv_block_bytes(KV_TYPES[kv_type], config.num_kv_heads, config.head_dim))


def unsupported(config: ModelConfig, block_size: int = BLOCK_SIZE) -> str | None:
    """Why the kernels cannot run a model of this shape; None: they can."""
    if block_size != BLOCK_SIZE:
        return f"blocks of {block_size} tokens (only {BLOCK_SIZE})"
    if config.hidden_size % 32:
        return f"hidden_size {config.hidden_size} is not a multiple of 32"
    if config.intermediate_size % 16:
        return f"intermediate_size {config.intermediate_size} is not a multiple of 16"
    if config.head_dim % 16 or config.head_dim > 256:
        return f"head_dim {config.head_dim} is not a multiple of 16 up to 256"
    if config.num_heads // config.num_kv_heads > 64:
        return f"{config.num_heads // config.num_kv_heads} query heads share a KV head (at most 64)"
    return None


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _check(
    tokens: Sequence[int],
    start: int,
    end: int,
    table: Sequence[int],
    num_logits: int,
    context_length: int,
) -> None:
    if not len(tokens):
        raise ValueError("a span needs at least one token")
    if start < 0 or end > context_length:
        raise ValueError(
            f"positions {start} to {end - 1} do not fit the context of {context_length} tokens"
        )
    if not 0 <= num_logits <= len(tokens):
        raise ValueError(f"num_logits must lie between 0 and {len(tokens)}, not {num_logits}")
    if len(table) * BLOCK_SIZE < end:
        raise ValueError(
            f"a context of {end} tokens needs {-(-end // BLOCK_SIZE)} blocks of {BLOCK_SIZE}, but "
            f"the block table names {len(table)}"
        )
