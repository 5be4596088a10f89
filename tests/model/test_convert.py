"""Converting GGUF files: the same weights and tokenizer come out, whole or not at all."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from radix_engine.model import convert
from radix_engine.model.errors import ModelError
from radix_engine.model.gguf_header import read_gguf_header
from radix_engine.model.load import load_model
from radix_engine.model.source import resolve_model
from tests.tiny import make_tiny_folder

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers.": "blk.",
}


def write_gguf(file: Path, folder: Path, architecture: str = "llama") -> None:
    """Write the tiny Llama in ``folder`` as a GGUF file, as its usual writers do."""
    config = json.loads((folder / "config.json").read_text())
    writer: Any = gguf.GGUFWriter(file, architecture)
    writer.add_name("Tiny")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokens = dict(tokenizer["model"]["vocab"])
    tokens |= {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    special = {token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(sorted(tokens, key=lambda token: tokens[token]))
    writer.add_token_types([3 if i in special else 1 for i in range(len(tokens))])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    writer.add_chat_template(template)
    for name, tensor in load_file(folder / "model.safetensors").items():
        values = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            values = _interleaved(values, heads)
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _interleaved(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """GGUF keeps the rows of Llama's Q and K so that the two of a rotated pair are neighbours."""
    rows, columns = values.shape
    return (
        values.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return make_tiny_folder(tmp_path / "original", tokenizer=True)


def test_a_gguf_file_becomes_the_model_that_it_was_written_from(
    tmp_path: Path, original: Path
) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file, original)
    lines: list[str] = []
    folder = resolve_model(str(file), tmp_path / "cache", lines.append)
    assert folder.name == "tiny"
    assert lines

    expected = load_file(original / "model.safetensors")
    converted = load_file(folder.path / "model.safetensors")
    assert converted.keys() == expected.keys()
    for name, tensor in expected.items():
        assert converted[name].dtype == torch.float32
        assert torch.equal(converted[name], tensor), name
    model = load_model(folder, torch.float32)
    assert model.config.context_length == 1024
    assert model.eos_token_ids == {511}

    settings = json.loads((folder.path / "tokenizer_config.json").read_text())
    theirs = json.loads((original / "tokenizer_config.json").read_text())
    assert settings["chat_template"] == theirs["chat_template"]
    before = Tokenizer.from_file(str(original / "tokenizer.json"))
    after = Tokenizer.from_file(str(folder.path / "tokenizer.json"))
    for text in ("<|im_start|>user\nthe thing<|im_end|>\n", " an inner wörld", "日本"):
        assert after.encode(text).ids == before.encode(text).ids
        assert after.decode(after.encode(text).ids, skip_special_tokens=False) == text

    # The name of the pre-tokenizer in the file, "smollm", stands for digits one by one.
    pre_tokenizer = json.loads((folder.path / "tokenizer.json").read_text())["pre_tokenizer"]
    assert [part["type"] for part in pre_tokenizer["pretokenizers"]] == ["Digits", "ByteLevel"]
    assert pre_tokenizer["pretokenizers"][0]["individual_digits"] is True

    lines.clear()
    assert resolve_model(str(file), tmp_path / "cache", lines.append) == folder
    assert lines == []
    assert [path.name for path in (tmp_path / "cache/models").iterdir()] == [folder.path.name]


def test_an_interrupted_conversion_leaves_nothing(
    tmp_path: Path, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file, original)

    def interrupted(file: Path, folder: Path, say: convert.Say) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(convert, "_write_weights", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resolve_model(str(file), tmp_path / "cache")
    assert list((tmp_path / "cache/models").iterdir()) == []


def test_a_file_of_another_architecture_is_refused_at_once(tmp_path: Path, original: Path) -> None:
    file = tmp_path / "other.gguf"
    write_gguf(file, original, architecture="gpt2")
    with pytest.raises(ModelError, match=r"architecture 'gpt2'.* supported: llama, mistral"):
        resolve_model(str(file), tmp_path / "cache")


def test_the_header_is_read_without_the_arrays(tmp_path: Path, original: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file, original)
    header = read_gguf_header(file)
    assert header["general.architecture"] == "llama"
    assert header["llama.context_length"] == 1024
    assert header["tokenizer.ggml.pre"] == "smollm"
    assert "tokenizer.ggml.tokens" not in header


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a GGUF file"),
        (b"PK\x03\x04 something", "is not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 9), "is GGUF version 9; supported: 2 and 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 5), "cannot be read as GGUF"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 99) + b"key", "the file ends inside a text"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 77), "as GGUF"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        resolve_model(str(file), tmp_path / "cache")
