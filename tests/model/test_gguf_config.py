"""What a GGUF file's metadata say becomes the same config.json, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from radix_engine.model.config import ModelConfig, RopeScaling, read_config
from radix_engine.model.errors import ModelError
from radix_engine.model.gguf_config import config_of
from radix_engine.model.gguf_header import read_gguf_header
from radix_engine.model.rope import inverse_frequencies
from tests.model.gguf_writing import write_gguf
from tests.tiny import make_tiny_folder

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def config(
    tmp_path: Path, architecture: str = "llama", *, folder: Path | None = None, **options: Any
) -> tuple[dict[str, Any], ModelConfig]:
    if folder is None:
        folder = make_tiny_folder(tmp_path / "original", architecture, tokenizer=True)
    file = write_gguf(tmp_path / "tiny.gguf", folder, architecture, **options)
    return config_of(file, read_gguf_header(file))


@pytest.mark.parametrize(
    ("architecture", "overrides"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True}),
        ("llama", {"head_dim": 32, "rope_theta": 500000.0}),
        ("qwen2", {}),
        ("qwen3", {"tie_word_embeddings": False}),
        ("qwen3", {"attention_bias": True, "head_dim": 32}),
    ],
)
def test_the_model_is_the_one_that_the_file_was_written_from(
    architecture: str, overrides: dict[str, Any], tmp_path: Path
) -> None:
    folder = make_tiny_folder(tmp_path / "original", architecture, tokenizer=True, **overrides)
    raw, parsed = config(tmp_path, architecture, folder=folder)
    # GGUF keeps the epsilon in float32.
    expected = read_config(folder)
    assert parsed.rms_eps == pytest.approx(expected.rms_eps, rel=1e-7)
    assert {**_fields(parsed), "rms_eps": 0} == {**_fields(expected), "rms_eps": 0}
    assert json.loads(json.dumps(raw)) == raw
    assert (raw["bos_token_id"], raw["eos_token_id"]) == (510, 511)


def test_without_lengths_heads_share_the_hidden_size_and_have_their_own_keys(
    tmp_path: Path,
) -> None:
    names = ("attention.key_length", "attention.value_length", "rope.dimension_count")
    metadata = dict.fromkeys((f"llama.{name}" for name in names), None)
    missing = {"llama.attention.head_count_kv": None, "llama.vocab_size": None}
    _, parsed = config(tmp_path, metadata=metadata | missing)
    assert (parsed.head_dim, parsed.num_kv_heads, parsed.vocab_size) == (16, 4, 512)


def test_a_value_for_each_layer_is_taken_where_all_agree(tmp_path: Path) -> None:
    key = "llama.attention.head_count_kv"
    assert config(tmp_path, metadata={key: [2, 2]})[1].num_kv_heads == 2
    with pytest.raises(ModelError, match=f"has another {key} for each layer"):
        config(tmp_path, metadata={key: [2, 4]})


def test_the_end_of_a_turn_ends_an_answer_too(tmp_path: Path) -> None:
    raw, _ = config(tmp_path, metadata={"tokenizer.ggml.eot_token_id": 509})
    assert raw["eos_token_id"] == [509, 511]


@pytest.mark.parametrize(
    ("metadata", "scaling"),
    [
        ({}, RopeScaling()),
        ({"llama.rope.scaling.factor": 4.0}, RopeScaling("linear", 4.0)),
        ({"llama.rope.scale_linear": 2.0}, RopeScaling("linear", 2.0)),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 8.0},
            RopeScaling("linear", 8.0),
        ),
        (
            {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 8.0},
            RopeScaling(),
        ),
    ],
)
def test_rope_scaling_is_read(
    metadata: dict[str, Any], scaling: RopeScaling, tmp_path: Path
) -> None:
    assert config(tmp_path, metadata=metadata)[1].rope_scaling == scaling


def test_factors_of_frequencies_divide_them_one_by_one(tmp_path: Path) -> None:
    factors = np.array([1, 1, 1, 1.5, 2, 4, 8, 8], np.float32)
    tensors = {"rope_freqs.weight": factors}
    plain = inverse_frequencies(config(tmp_path)[1])
    divided = inverse_frequencies(config(tmp_path, tensors=tensors)[1])
    assert torch.equal(divided, plain / torch.from_numpy(factors))
    linear = {"llama.rope.scaling.factor": 2.0}
    both = inverse_frequencies(config(tmp_path, tensors=tensors, metadata=linear)[1])
    assert torch.equal(both, plain / torch.from_numpy(2 * factors))


def test_llama3_scaling_comes_back_out_of_its_factors(tmp_path: Path) -> None:
    rope = {"rope_theta": 10000.0, **LLAMA3_ROPE}
    scaled = make_tiny_folder(tmp_path / "scaled", tokenizer=True, rope_parameters=rope)
    expected = inverse_frequencies(read_config(scaled))
    plain = inverse_frequencies(read_config(make_tiny_folder(tmp_path / "plain")))
    assert len(set((plain / expected).tolist())) > 2  # kept, in passage, stretched
    tensors = {"rope_freqs.weight": (plain / expected).numpy()}
    _, parsed = config(tmp_path, folder=scaled, tensors=tensors)
    torch.testing.assert_close(inverse_frequencies(parsed), expected, rtol=3e-7, atol=0)


@pytest.mark.parametrize(
    ("architecture", "metadata", "windows"),
    [
        ("llama", {"sliding_window": 256}, (256, 256)),
        ("llama", {"sliding_window": 1024}, (None, None)),
        ("llama", {"sliding_window": 0}, (None, None)),
        ("qwen2", {"sliding_window": 256}, (None, None)),
        (
            "qwen3",
            {"sliding_window": 256, "sliding_window_pattern": [False, True]},
            (None, 256),
        ),
    ],
)
def test_sliding_windows_are_read_where_the_file_has_them(
    architecture: str,
    metadata: dict[str, Any],
    windows: tuple[int | None, ...],
    tmp_path: Path,
) -> None:
    prefixed = {f"{architecture}.attention.{name}": value for name, value in metadata.items()}
    raw, parsed = config(tmp_path, architecture, metadata=prefixed)
    assert parsed.windows == windows
    expected = "mistral" if architecture == "llama" and metadata["sliding_window"] else architecture
    assert raw["model_type"] == expected


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.block_count": None}, r"lacks llama\.block_count"),
        ({"llama.context_length": None}, r"lacks llama\.context_length"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "lacks llama.*rms_epsilon"),
        ({"llama.attention.head_count": 3}, "cannot be served: num_attention_heads"),
        ({"llama.attention.value_length": 8}, "value_length is 8"),
        ({"llama.rope.dimension_count": 8}, "rope.dimension_count is 8"),
        ({"llama.rope.scaling.type": "yarn"}, "'yarn'; supported: none, linear, and the fact"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"split.count": 3}, "one part of several"),
        (
            {
                "llama.attention.sliding_window": 64,
                "llama.attention.sliding_window_pattern": [True, False],
            },
            "sliding_window_pattern",
        ),
    ],
)
def test_what_the_forward_pass_does_not_cover_is_refused(
    metadata: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=rf"tiny\.gguf .*{message}"):
        config(tmp_path, metadata=metadata)


@pytest.mark.parametrize("architecture", ["gpt2", "gemma2", "mistral"])
def test_another_architecture_is_refused(architecture: str, tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path / "original", tokenizer=True)
    file = write_gguf(tmp_path / "tiny.gguf", folder, architecture)
    message = rf"tiny\.gguf .*architecture '{architecture}'.* supported: llama, qwen2, qwen3 \("
    with pytest.raises(ModelError, match=message):
        config_of(file, read_gguf_header(file))


def _fields(value: ModelConfig) -> dict[str, Any]:
    return {name: getattr(value, name) for name in ModelConfig.__slots__}
