"""Reading a GGUF file's header: what it says, and broken files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from radix_engine.model.errors import ModelError
from radix_engine.model.gguf_header import GGUFHeader, TensorInfo, read_gguf_header
from tests.model.gguf_writing import write_gguf
from tests.tiny import make_tiny_folder


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def start(tensors: int, pairs: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


@pytest.fixture
def header(tmp_path: Path) -> GGUFHeader:
    original = make_tiny_folder(tmp_path / "original", tokenizer=True)
    metadata = {"llama.attention.sliding_window_pattern": [True, False]}
    return read_gguf_header(write_gguf(tmp_path / "tiny.gguf", original, metadata=metadata))


def test_texts_numbers_and_short_arrays_are_read_and_the_vocabulary_is_counted(
    header: GGUFHeader,
) -> None:
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.context_length"] == 1024
    assert header.metadata["llama.rope.freq_base"] == 10000.0
    assert header.metadata["llama.attention.sliding_window_pattern"] == (True, False)
    assert "tokenizer.ggml.tokens" not in header.metadata
    assert header.lengths["tokenizer.ggml.tokens"] == 512


def test_tensors_have_their_rows_first_and_lie_where_the_file_says(
    header: GGUFHeader, tmp_path: Path
) -> None:
    info = header.tensors["blk.1.ffn_down.weight"]
    assert (info.shape, info.type_id) == ((64, 112), 0)
    assert info.offset % 32 == 0
    data = np.fromfile(tmp_path / "tiny.gguf", np.float32, 2, offset=info.offset)
    original = make_tiny_folder(tmp_path / "again")
    weights = load_file(original / "model.safetensors")
    assert data.tolist() == weights["model.layers.1.mlp.down_proj.weight"][0, :2].tolist()


def test_data_begin_at_the_alignment_that_the_file_names(tmp_path: Path) -> None:
    file = tmp_path / "aligned.gguf"
    alignment = text("general.alignment") + struct.pack("<II", 4, 256)
    tensor = text("t") + struct.pack("<IQQIQ", 2, 5, 7, 1, 512)
    file.write_bytes(start(1, 1) + alignment + tensor)
    assert read_gguf_header(file).tensors == {"t": TensorInfo("t", (7, 5), 1, 256 + 512)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a GGUF file"),
        (b"PK\x03\x04 something", "is not a GGUF file"),
        (b"GGUF", "cannot be read as GGUF"),
        (b"GGUF" + struct.pack("<I", 9), "is GGUF version 9; supported: 2 and 3"),
        (start(0, 5), "cannot be read as GGUF"),
        (start(0, 1) + struct.pack("<Q", 99) + b"key", "the file ends inside a text"),
        (start(0, 1) + text("k") + struct.pack("<I", 77), "as GGUF"),
        (start(0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 2**63), "as GGUF"),
        (start(0, 2) + text("k") + struct.pack("<IIQ", 9, 10, 2**63), "as GGUF"),
        (start(0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 1) * 20_000, "as GGUF"),
        (start(1, 0) + text("t") + struct.pack("<I", 1000), "tensor t has 1000 dimensions"),
        (start(1, 1) + text("general.alignment") + struct.pack("<II", 4, 0), "as GGUF"),
        (start(2, 0) + 2 * (text("t") + struct.pack("<IQIQ", 1, 1, 0, 0)), "the same name"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=rf"broken\.gguf .*{message}|broken\.gguf {message}"):
        read_gguf_header(file)
