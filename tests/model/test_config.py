"""Reading config.json: the same model from older and newer files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.model.config import parse_config, read_config, read_eos_token_ids, read_sampling
from radix_engine.model.errors import ModelError
from radix_engine.model.sampling_params import SamplingParams
from tests.tiny import make_tiny_folder


def raw(model_type: str = "llama", **overrides: Any) -> dict[str, Any]:
    """A complete config.json; an override of None takes the field out."""
    config = {
        "model_type": model_type,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 1000,
        "max_position_embeddings": 2048,
    } | overrides
    return {field: value for field, value in config.items() if value is not None}


def test_sizes_and_defaults_are_read() -> None:
    config = parse_config(raw())
    assert (config.num_layers, config.head_dim, config.num_kv_heads) == (3, 8, 4)
    assert config.context_length == 2048
    assert config.rope_theta == 10000.0
    assert config.rms_eps == 1e-6
    assert not config.tied_embeddings
    assert config.kv_bytes_per_token(torch.bfloat16) == 3 * 2 * 4 * 8 * 2
    assert config.kv_bytes_per_token(torch.float32) == 3 * 2 * 4 * 8 * 4


def test_without_kv_heads_every_head_has_its_own() -> None:
    assert parse_config(raw(num_key_value_heads=None)).num_kv_heads == 8


def test_families_differ_in_biases_and_norms() -> None:
    llama = parse_config(raw("llama", attention_bias=True, mlp_bias=True))
    assert (llama.qkv_bias, llama.output_bias, llama.mlp_bias) == (True, True, True)
    qwen2 = parse_config(raw("qwen2"))
    assert (qwen2.qkv_bias, qwen2.output_bias, qwen2.qk_norm) == (True, False, False)
    qwen3 = parse_config(raw("qwen3"))
    assert (qwen3.qkv_bias, qwen3.qk_norm, qwen3.head_dim) == (False, True, 128)


def test_rope_is_read_from_older_and_newer_fields() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    }
    older = parse_config(raw(rope_theta=500000.0, rope_scaling=scaling))
    newer = parse_config(raw(rope_parameters=scaling | {"rope_theta": 500000.0}))
    assert older == newer
    assert newer.rope_scaling.original_context_length == 512
    oldest = parse_config(raw(rope_scaling={"type": "linear", "factor": 2.0}))
    assert (oldest.rope_scaling.kind, oldest.rope_scaling.factor) == ("linear", 2.0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' .* supported: llama, mistral, qwen2, qwen3"),
        ({"model_type": None}, "model_type None"),
        ({"hidden_size": None}, "hidden_size .* not None"),
        ({"num_hidden_layers": 0}, "num_hidden_layers .* not 0"),
        ({"vocab_size": "many"}, "vocab_size .* not 'many'"),
        ({"num_key_value_heads": 3}, "not a multiple of num_key_value_heads"),
        ({"head_dim": 7}, "head_dim .* must be even"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized weights"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, "lacks 'low_freq_factor'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
    ],
)
def test_what_the_forward_pass_does_not_cover_is_refused(
    overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        parse_config(raw(**overrides))


QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 512}
ONE_SLIDES = ["full_attention", "sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    ("model_type", "overrides", "windows"),
    [
        ("mistral", {"sliding_window": 1024}, (1024, 1024, 1024)),
        ("mistral", {"max_position_embeddings": 32768}, (4096, 4096, 4096)),  # when nothing is said
        ("qwen2", {**QWEN_WINDOW, "max_window_layers": 1}, (None, 512, 512)),
        ("qwen3", {**QWEN_WINDOW, "layer_types": ONE_SLIDES}, (None, 512, None)),
    ],
)
def test_the_layers_that_slide_have_the_window(
    model_type: str, overrides: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    assert parse_config(raw(model_type, **overrides)).windows == windows


@pytest.mark.parametrize(
    ("model_type", "overrides"),
    [
        ("llama", {"sliding_window": 512}),
        ("mistral", {"sliding_window": 2048}),  # as long as the context
        ("mistral", {"max_position_embeddings": 4096}),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 512, "max_window_layers": 0}),
        ("qwen2", QWEN_WINDOW),  # from layer 28 on
        ("qwen3", {**QWEN_WINDOW, "layer_types": ["full_attention"] * 3}),
    ],
)
def test_a_window_that_never_hides_a_token_is_none(
    model_type: str, overrides: dict[str, Any]
) -> None:
    assert parse_config(raw(model_type, **overrides)).windows == (None, None, None)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types .* each of the 3 layers"),
        ({"layer_types": ["chunked_attention"] * 3}, "layer_types .* not .'chunked_attention'"),
        ({"layer_types": ONE_SLIDES}, "use_sliding_window is off"),
        ({**QWEN_WINDOW, "sliding_window": 0, "max_window_layers": 0}, "sliding_window .* not 0"),
        ({**QWEN_WINDOW, "max_window_layers": "all"}, "max_window_layers .* not 'all'"),
    ],
)
def test_windows_that_contradict_themselves_are_refused(
    overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        parse_config(raw("qwen3", **overrides))


def test_mistral_without_any_window_is_taken(tmp_path: Path) -> None:
    folder = make_tiny_folder(tmp_path, "mistral", max_position_embeddings=32768)
    config = read_config(folder)
    assert config.context_length == 32768
    assert config.windows == (None, None)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json cannot be read"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="must hold a JSON object"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [1, 2]}, {"eos_token_id": 3}, {1, 2}),
        ({"eos_token_id": 7}, {}, {7}),
        ({}, {"eos_token_id": 3}, {3}),
        (None, {"eos_token_id": [4]}, {4}),
        (None, {}, set()),
    ],
)
def test_eos_ids_come_from_the_generation_config_first(
    tmp_path: Path,
    generation: dict[str, Any] | None,
    config: dict[str, Any],
    expected: set[int],
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert read_eos_token_ids(tmp_path) == expected


def test_an_eos_id_that_is_no_id_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(ModelError, match="eos_token_id"):
        read_eos_token_ids(tmp_path)


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (None, (1.0, 1.0, 0)),
        ({"eos_token_id": 2}, (1.0, 1.0, 0)),
        ({"temperature": 0.2, "top_p": 0.9}, (0.2, 0.9, 0)),
        ({"temperature": 0.7, "top_p": None, "top_k": 20}, (0.7, 1.0, 20)),
    ],
)
def test_the_recommended_sampling_comes_from_the_generation_config(
    tmp_path: Path, generation: dict[str, Any] | None, expected: tuple[float, float, int]
) -> None:
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    sampling = read_sampling(tmp_path)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == expected


def test_recommended_min_p_and_repetition_penalty_are_read(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"min_p": 0.05, "repetition_penalty": 1.1}')
    assert read_sampling(tmp_path) == SamplingParams(min_p=0.05, repetition_penalty=1.1)


def test_a_recommended_sampling_out_of_range_names_file_and_field(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"temperature": -1}')
    with pytest.raises(ModelError, match=r"generation_config\.json: temperature must"):
        read_sampling(tmp_path)
