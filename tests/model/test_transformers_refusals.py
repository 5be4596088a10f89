"""What cannot run over KV blocks is refused by name, before it could answer anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING

from radix_engine.model.errors import ModelError
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import choose_forward, read_transformers_config
from radix_engine.model.transformers_load import load_transformers_model
from tests.model.transformers_tiny import tiny_config, write_tiny_model

LONG_ROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
}


def write_raw(path: Path, **fields: Any) -> Path:
    (path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    return path


def load(path: Path) -> None:
    load_transformers_model(ModelFolder(path, "tiny"), torch.float32)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
def test_our_own_families_run_by_our_own_forward_pass(model_type: str, tmp_path: Path) -> None:
    assert choose_forward(write_raw(tmp_path, model_type=model_type)) == "own"


@pytest.mark.parametrize("model_type", ["gpt2", "mamba", "unheard_of"])
def test_all_others_are_for_transformers_to_run_or_refuse(model_type: str, tmp_path: Path) -> None:
    assert choose_forward(write_raw(tmp_path, model_type=model_type)) == "transformers"


@pytest.mark.parametrize(
    ("model_type", "fields", "message"),
    [
        ("mamba", {}, "'mamba'.*recurrent and hybrid models"),
        ("qwen3_next", {}, "'qwen3_next'.*recurrent and hybrid models"),
        ("t5", {}, "'t5'.*encoder-decoder models"),
        ("bart", {}, "'bart'.*encoder-decoder models"),
        ("bloom", {}, "'bloom'.*cannot be replaced"),
        ("falcon", {}, "'falcon'.*cannot be replaced"),
        ("vit", {}, "'vit'.*no causal language model"),
        ("llama4_text", {}, "'llama4_text'.*chunked_attention"),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}, "'lfm2'.*layers of the kind conv "),
    ],
)
def test_a_configuration_that_cannot_run_is_refused_without_weights(
    model_type: str, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    layers = {"num_hidden_layers": 2} if "layer_types" in fields else {}
    CONFIG_MAPPING[model_type](**fields, **layers).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=message):
        read_transformers_config(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "model_type None in config.json is not known"),
        ({"model_type": "new"}, "model_type 'new' in config.json is not known"),
        ({"model_type": "new", "auto_map": {"AutoConfig": "own.Config"}}, "auto_map.* is not run"),
        (
            {
                "model_type": "gpt2",
                "architectures": ["OwnForCausalLM"],
                "auto_map": {"AutoModelForCausalLM": "own.OwnForCausalLM"},
            },
            "OwnForCausalLM is code that comes with the model",
        ),
        ({"model_type": "gpt2", "quantization_config": {"bits": 4}}, "quantized weights"),
        ({"model_type": "gpt2", "n_positions": 0}, "max_position_embeddings"),
        ({"model_type": "gpt2", "n_layer": "many"}, "config.json cannot be used"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        read_transformers_config(write_raw(tmp_path, **fields))


def test_code_that_comes_with_a_known_model_is_left_alone(tmp_path: Path) -> None:
    fields = {"architectures": ["GPT2LMHeadModel"], "auto_map": {"AutoModelForCausalLM": "own.Own"}}
    write_raw(tmp_path, model_type="gpt2", **fields)
    assert read_transformers_config(tmp_path).context_length == 1024


def test_a_context_ends_where_rotation_would_change_for_cached_tokens_too(tmp_path: Path) -> None:
    config = tiny_config("phi3", rope_parameters=LONG_ROPE, original_max_position_embeddings=64)
    write_tiny_model(tmp_path, config)
    assert config.max_position_embeddings == 256
    assert read_transformers_config(tmp_path).context_length == 64


@pytest.mark.parametrize(
    ("model_type", "fields", "message"),
    [
        (
            "gpt_oss",
            {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 8},
            "'gpt_oss': its attention takes s_aux",
        ),
        ("gemma3_text", {"use_bidirectional_attention": True}, "'gemma3_text': .*not causal"),
        ("diffllama", {}, "'diffllama': a layer's attention runs twice"),
        (
            "deepseek_v3",
            {
                "head_dim": 8,
                "num_key_value_heads": 4,
                "q_lora_rank": 16,
                "kv_lora_rank": 16,
                "qk_rope_head_dim": 8,
                "qk_nope_head_dim": 8,
                "v_head_dim": 24,
                "first_k_dense_replace": 4,
            },
            "'deepseek_v3': its keys and values have different shapes",
        ),
    ],
)
def test_attention_that_ours_does_not_do_is_refused_at_loading(
    model_type: str, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_tiny_model(tmp_path, tiny_config(model_type, **fields))
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


def test_a_model_that_mixes_tokens_elsewhere_fails_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

    write_tiny_model(tmp_path, tiny_config("gpt2"))
    load(tmp_path)
    plain = GPT2MLP.forward

    def shifted(self: Any, states: torch.Tensor) -> torch.Tensor:
        before = torch.nn.functional.pad(states, (0, 0, 1, -1))
        mixed: torch.Tensor = plain(self, states + before)
        return mixed

    monkeypatch.setattr(GPT2MLP, "forward", shifted)
    with pytest.raises(ModelError, match="'gpt2': in a trial its logits over KV blocks differed"):
        load(tmp_path)


def test_a_model_with_layers_that_never_attend_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    write_tiny_model(tmp_path, tiny_config("gpt2"))
    plain = GPT2Attention.forward

    def skipping(self: Any, states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return (states, None) if self.layer_idx == 1 else plain(self, states, *args, **kwargs)

    monkeypatch.setattr(GPT2Attention, "forward", skipping)
    with pytest.raises(ModelError, match="'gpt2': 2 of 3 layers have attention"):
        load(tmp_path)


def test_missing_weights_are_refused_by_name(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, tiny_config("olmo2"))
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 tensors are missing.*layers\.1\.mlp\.up_proj\.weight"):
        load(tmp_path)


def test_only_safetensors_are_read(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path, tiny_config("olmo2"))
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded by transformers"):
        load(tmp_path)
