"""Reading the header of a GGUF file: its metadata, and where which tensor lies.

The layout is that of the GGUF specification, versions 2 and 3: magic, version, number of tensors,
number of key-value pairs, the pairs, the descriptions of the tensors, all little-endian; then the
data, aligned. The ``gguf`` package reads it too, but takes seconds over the vocabulary; this takes
a fraction of one.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from radix_engine.model.errors import ModelError

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9

# Longer arrays are vocabularies; shorter ones of numbers have a value for each layer, or so.
_LONGEST_ARRAY = 1024

_MOST_DIMENSIONS = 4

Scalar = str | int | float | bool
Value = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor in a GGUF file.

    ``shape`` is in the usual order, rows first (the file has it reversed). ``type_id`` is ggml's
    number for the type of its values, ``offset`` the position of its first byte in the file.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """What a GGUF file says about its content.

    ``metadata`` by key, without arrays of texts and long arrays, of which ``lengths`` has the
    number of entries; ``tensors`` by name.
    """

    metadata: dict[str, Value]
    lengths: dict[str, int]
    tensors: dict[str, TensorInfo]


def read_gguf_header(path: Path) -> GGUFHeader:
    """The header of a GGUF file.

    Costs some tens of milliseconds for a vocabulary of 50,000. Raises ModelError for a file that is
    not GGUF, is cut short within its header or cannot be read.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ModelError(f"{path} is not a GGUF file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                return _read(path, _Cursor(mapped, 4))
    except (OSError, struct.error, KeyError, ValueError, OverflowError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as GGUF: {error}") from error


def _read(path: Path, cursor: _Cursor) -> GGUFHeader:
    version = cursor.integer("I")
    if version not in (2, 3):
        raise ModelError(f"{path} is GGUF version {version}; supported: 2 and 3")
    tensor_count, pairs = cursor.integer("Q"), cursor.integer("Q")
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(pairs):
        key = cursor.text()
        kind = cursor.integer("I")
        if kind == _ARRAY:
            inner, length = cursor.integer("I"), cursor.integer("Q")
            lengths[key] = length
            if inner in _SCALARS and length <= _LONGEST_ARRAY:
                metadata[key] = tuple(cursor.scalar(inner) for _ in range(length))
            else:
                cursor.skip(inner, length)
        else:
            metadata[key] = cursor.scalar(kind)
    described = [_describe(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}")
    data = math.ceil(cursor.position / alignment) * alignment
    tensors = {
        name: TensorInfo(name, shape, type_id, data + offset)
        for name, shape, type_id, offset in described
    }
    if len(tensors) < tensor_count:
        raise ValueError("two tensors have the same name")
    return GGUFHeader(metadata, lengths, tensors)


def _describe(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type and position behind the header of the next tensor."""
    name = cursor.text()
    dimensions = cursor.integer("I")
    if dimensions > _MOST_DIMENSIONS:
        raise ValueError(f"tensor {name} has {dimensions} dimensions")
    shape = [cursor.integer("Q") for _ in range(dimensions)]
    return name, tuple(reversed(shape)), cursor.integer("I"), cursor.integer("Q")


class _Cursor:
    """A position in the file, which reading moves on."""

    def __init__(self, data: mmap.mmap, position: int) -> None:
        self.data = data
        self.position = position

    def scalar(self, kind: int) -> Scalar:
        return self.text() if kind == _STRING else self.number(_SCALARS[kind])

    def number(self, code: str) -> int | float | bool:
        layout = "<" + code
        value: int | float | bool = struct.unpack_from(layout, self.data, self.position)[0]
        self.position += struct.calcsize(layout)
        return value

    def integer(self, code: str) -> int:
        return int(self.number(code))

    def text(self) -> str:
        length = self.integer("Q")
        text = self.data[self.position : self.position + length]
        if len(text) < length:
            raise ValueError("the file ends inside a text")
        self.position += length
        return text.decode("utf-8")

    def skip(self, kind: int, length: int) -> None:
        """Move on over ``length`` values of one kind."""
        if kind in _SCALARS:
            self.position += length * struct.calcsize("<" + _SCALARS[kind])
        elif kind == _STRING:
            self._skip_texts(length)
        elif kind == _ARRAY:
            for _ in range(length):
                inner, count = self.integer("I"), self.integer("Q")
                self.skip(inner, count)
        else:
            raise KeyError(kind)

    def _skip_texts(self, count: int) -> None:
        # A vocabulary has hundreds of thousands: nothing but a look at each length.
        read, data, position = struct.Struct("<Q").unpack_from, self.data, self.position
        for _ in range(count):
            position += 8 + read(data, position)[0]
        self.position = position
