"""What K and V of a token take, from the configurations of known models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.model.gguf_writing import write_gguf
from tests.tiny import make_tiny_folder
from workloads.__main__ import main
from workloads.simulation.kv_size import ConfigError, kv_size_of

LLAMA_31_8B = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
}


def test_llama_31_8b_takes_128_kib_a_token_in_16_bits_and_64_in_8() -> None:
    size = kv_size_of(LLAMA_31_8B)
    assert size.bytes_a_token("bf16") == 128 * 1024
    assert size.bytes_a_token("fp8") == 64 * 1024
    assert size.remarks == ()


def model(layers: int, heads: int, hidden: int, **more: Any) -> dict[str, Any]:
    sizes = {"num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": hidden}
    return sizes | more


@pytest.mark.parametrize(
    ("config", "kib"),
    [
        # SmolLM2-135M: 30 layers, 3 heads of 64; two bytes.
        (model(30, 9, 576, num_key_value_heads=3), 22.5),
        # Qwen3-0.6B has heads larger than its share of the hidden size: 28 layers, 8 of 128.
        (model(28, 16, 1024, num_key_value_heads=8, head_dim=128), 112),
        # GPT-2: all 12 heads of 64 have K and V, in 12 layers.
        ({"n_layer": 12, "n_head": 12, "n_embd": 768}, 36),
        # One head of 64 for all 71, in 60 layers.
        (model(60, 71, 4544, multi_query=True), 15),
        # The language part of a model that reads images.
        ({"text_config": LLAMA_31_8B, "num_hidden_layers": 2}, 128),
    ],
)
def test_other_models_by_hand(config: dict[str, Any], kib: float) -> None:
    assert kv_size_of(config).bytes_a_token("bf16") == kib * 1024


def test_sliding_windows_are_named() -> None:
    (remark,) = kv_size_of({**LLAMA_31_8B, "sliding_window": 4096}).remarks
    assert "sliding window: layers look back 4,096 tokens only" in remark
    kinds = ["sliding_attention", "full_attention"] * 16
    (remark,) = kv_size_of({**LLAMA_31_8B, "sliding_window": 512, "layer_types": kinds}).remarks
    assert "16 of 32 layers look back 512 tokens" in remark
    off = {**LLAMA_31_8B, "sliding_window": 512, "use_sliding_window": False}
    assert kv_size_of(off).remarks == ()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**LLAMA_31_8B, "kv_lora_rank": 512}, "latent attention (MLA)"),
        ({**LLAMA_31_8B, "layer_types": ["linear_attention"] * 32}, "linear_attention"),
        ({"num_hidden_layers": 2}, "num_attention_heads is missing"),
        ({**LLAMA_31_8B, "hidden_size": 100}, "hidden_size 100 is not a multiple of 32 heads"),
        ({**LLAMA_31_8B, "num_hidden_layers": 0}, "num_hidden_layers must be a whole number"),
    ],
)
def test_what_cannot_be_told_says_why(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        kv_size_of(config)
    assert message in str(refused.value)


def test_the_arithmetic_is_printed_line_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_31_8B))
    asked = ["--tokens", "131072", "--memory", "40GiB"]
    assert main(["kv-size", str(tmp_path), *asked]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "layers 32",
        "K and V x 2",
        "K/V heads x 8",
        "head size x 128",
        "bytes, bf16 x 2",
        "a token = 131,072 bytes = 128 KiB",
        "a block of 16 tokens: 2 MiB",
        "131,072 tokens: 8,192 blocks, 16 GiB",
        "40 GiB: 20,480 blocks, 327,680 tokens",
    ]
    assert main(["kv-size", str(tmp_path / "config.json"), "--dtype", "fp8"]) == 0
    assert "65,536 bytes = 64 KiB" in capsys.readouterr().out
    # A block takes 2 MiB; what is left of the memory holds none.
    assert main(["kv-size", str(tmp_path), "--memory", "5MiB"]) == 0
    assert "5 MiB: 2 blocks, 32 tokens" in capsys.readouterr().out


def test_a_file_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, message in (
        (tmp_path, "config.json: cannot be read"),
        (tmp_path / "x.gguf", "x.gguf"),
    ):
        assert main(["kv-size", str(path)]) == 2
        assert message in capsys.readouterr().err


def test_a_gguf_files_header_tells_it_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_tiny_folder(tmp_path / "tiny", tokenizer=True)
    config = json.loads((folder / "config.json").read_text())
    told = write_gguf(tmp_path / "tiny.gguf", folder)
    for path in (folder, told):
        assert main(["kv-size", str(path), "--dtype", "fp32"]) == 0
        head = config["hidden_size"] // config["num_attention_heads"]
        size = config["num_hidden_layers"] * 2 * config["num_key_value_heads"] * head * 4
        assert f"{size:,} bytes" in capsys.readouterr().out
