"""Reading the metadata of a GGUF file: what it holds, without its tensors.

The layout is that of the GGUF specification, versions 2 and 3: magic, version, number of tensors,
number of key-value pairs, then the pairs, little-endian. The ``gguf`` package reads it too, but
takes seconds over the vocabulary; this takes a fraction of one.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

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

Scalar = str | int | float | bool


def read_gguf_header(path: Path) -> dict[str, Scalar]:
    """All metadata of a GGUF file that is not an array, by key.

    Raises ModelError for a file that is not GGUF, is cut short or cannot be read.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ModelError(f"{path} is not a GGUF file")
            version = _number(file, "I")
            if version not in (2, 3):
                raise ModelError(f"{path} is GGUF version {version}; supported: 2 and 3")
            _number(file, "Q")
            pairs = int(_number(file, "Q"))
            found: dict[str, Scalar] = {}
            for _ in range(pairs):
                key = _string(file)
                kind = int(_number(file, "I"))
                if kind == _ARRAY:
                    _skip_array(file)
                else:
                    found[key] = _value(file, kind)
            return found
    except (OSError, struct.error, UnicodeDecodeError, KeyError) as error:
        raise ModelError(f"{path} cannot be read as GGUF: {error}") from error


def _value(file: BinaryIO, kind: int) -> Scalar:
    return _string(file) if kind == _STRING else _number(file, _SCALARS[kind])


def _string(file: BinaryIO) -> str:
    length = int(_number(file, "Q"))
    text = file.read(length)
    if len(text) < length:
        raise struct.error("the file ends inside a text")
    return text.decode("utf-8")


def _number(file: BinaryIO, code: str) -> int | float | bool:
    layout = "<" + code
    value: int | float | bool = struct.unpack(layout, file.read(struct.calcsize(layout)))[0]
    return value


def _skip_array(file: BinaryIO) -> None:
    kind = int(_number(file, "I"))
    length = int(_number(file, "Q"))
    if kind in _SCALARS:
        file.seek(length * struct.calcsize("<" + _SCALARS[kind]), 1)
        return
    for _ in range(length):
        if kind == _STRING:
            file.seek(int(_number(file, "Q")), 1)
        else:
            _skip_array(file)
