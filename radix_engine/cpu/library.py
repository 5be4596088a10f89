"""The compiled kernels as Python sees them: functions of a shared library, through ctypes.

The structures repeat those of kernels/matrix.h and kernels/model.h. A call lets go of Python's
lock, so other threads run during a step.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

from radix_engine.cpu.processor import KernelKind

FORMATS = {"fp32": 0, "bf16": 1, "int8": 2, "int4": 3}
"""How a matrix is stored. See kernels/matrix.h."""

KV_TYPES = {"fp32": 0, "bf16": 1, "int8": 2}
"""How K and V are stored. See kernels/kv.h."""


class MatrixStruct(Structure):
    """`Matrix` in kernels/matrix.h."""

    _fields_ = [
        ("format", c_int32),
        ("outputs", c_int32),
        ("columns", c_int32),
        ("unused", c_int32),
        ("data", c_void_p),
        ("bias", c_void_p),
    ]


class LayerStruct(Structure):
    """`Layer` in kernels/model.h."""

    _fields_ = [
        ("qkv", MatrixStruct),
        ("output", MatrixStruct),
        ("gate_up", MatrixStruct),
        ("down", MatrixStruct),
        ("input_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("kv", c_void_p),
        ("window", c_int32),
        ("unused", c_int32),
    ]


class ModelStruct(Structure):
    """`Model` in kernels/model.h."""

    _fields_ = [
        ("layers", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("inner", c_int32),
        ("vocab", c_int32),
        ("kv_type", c_int32),
        ("eps", c_float),
        ("softcap", c_float),
        ("embedding", c_void_p),
        ("embedding_halves", c_int32),
        ("unused", c_int32),
        ("frequencies", c_void_p),
        ("norm", c_void_p),
        ("layer", POINTER(LayerStruct)),
        ("head", MatrixStruct),
    ]


class BatchStruct(Structure):
    """`Batch` in kernels/model.h."""

    _fields_ = [
        ("tokens", c_int32),
        ("spans", c_int32),
        ("starts", c_void_p),
        ("lengths", c_void_p),
        ("logits", c_void_p),
        ("tables", c_void_p),
        ("table_at", c_void_p),
        ("ids", c_void_p),
        ("out", c_void_p),
    ]


class Kernels:
    """The functions of one compiled library."""

    def __init__(self, path: Path, kind: KernelKind) -> None:
        """Raises OSError where the file is no library of this machine."""
        library = ctypes.CDLL(str(path))
        self.kind = kind
        self.name = _function(library.kernels_name, [], c_char_p)().decode()
        self.matrix_bytes = _function(library.matrix_bytes, [c_int] * 3, c_int64)
        self.kv_block_bytes = _function(library.kv_block_bytes, [c_int] * 3, c_int64)
        pack = [c_void_p, c_int, c_void_p, c_int, c_int, c_int, c_void_p, c_int, c_int]
        self.pack_matrix = _function(library.pack_matrix, pack, None)
        self.pack_blocks = _function(library.pack_blocks, pack, None)
        self.multiply_rows = _function(
            library.multiply_rows, [POINTER(MatrixStruct), c_void_p, c_int, c_void_p], c_int
        )
        self.apply_function = _function(library.apply_function, [c_int, c_void_p, c_void_p], None)
        self.replay_crew = _function(
            library.replay_crew, [c_int, c_int, c_void_p, c_void_p, c_void_p], None
        )
        self.engine_new = _function(library.engine_new, [POINTER(ModelStruct), c_int], c_void_p)
        self.engine_free = _function(library.engine_free, [c_void_p], None)
        self.engine_forward = _function(
            library.engine_forward, [c_void_p, POINTER(BatchStruct), c_int], c_int
        )
        self.engine_last = _function(library.engine_last, [c_void_p, c_void_p], None)


def _function(function: Any, arguments: list[Any], result: Any) -> Any:
    function.argtypes = arguments
    function.restype = result
    return function
