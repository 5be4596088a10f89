"""Whether a model is computed on a GPU, and by what; on a machine that has none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.gpu.fit import GpuFacts
from radix_engine.model.config import ModelConfig, read_config
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import TransformersConfig
from server import Engine, EngineOptions
from server.__main__ import main
from server.gpu_choice import GpuWay, gpu_way, on_processor, refuse_early
from server.model_choice import choose
from tests.server.gpus import H200, NO_CUDA, T4, fitting_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitting_model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def config(folder: Path) -> ModelConfig:
    return read_config(folder)


def way_of(config: ModelConfig, facts: GpuFacts, **fields: Any) -> GpuWay:
    way = gpu_way(config, EngineOptions(**fields), facts)
    assert way is not None
    return way


def test_flashinfer_computes_in_bf16_where_it_fits(config: ModelConfig) -> None:
    way = way_of(config, H200)
    assert (way.device, way.dtype, way.flashinfer) == (
        torch.device("cuda", 2),
        torch.bfloat16,
        True,
    )
    assert way.says.startswith("Computing on NVIDIA H200 with FlashInfer")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"capability": (7, 5)}, "compute capability 8.0 or more"),
        ({"flashinfer": None}, "FlashInfer is not installed"),
        ({"tvm_ffi": "0.1.0"}, "apache-tvm-ffi 0.1.0"),
    ],
)
def test_torch_computes_on_a_gpu_that_flashinfer_does_not_fit(
    config: ModelConfig, change: dict[str, Any], why: str
) -> None:
    way = way_of(config, replace(H200, **change))
    assert not way.flashinfer
    assert "torch's attention" in way.says
    assert why in way.says
    assert "\n" not in way.says


def test_a_gpu_that_does_not_multiply_in_bf16_gets_fp32(config: ModelConfig) -> None:
    assert way_of(config, T4).dtype == torch.float32
    assert way_of(config, T4, dtype="bf16").dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("change", "fields", "why"),
    [
        ({"head_dim": 80}, {}, "these have 80"),
        ({"head_dim": 16}, {}, "these have 16"),
        ({}, {"dtype": "fp32"}, "not in float32"),
    ],
)
def test_torch_computes_what_flashinfers_kernels_do_not_cover(
    config: ModelConfig, change: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    model = replace(config, **change)
    way = way_of(model, H200, **fields)
    assert not way.flashinfer
    assert why in way.says
    with pytest.raises(ValueError, match=f"--attention flashinfer: .*{why}.*--attention torch"):
        gpu_way(model, EngineOptions(attention="flashinfer", **fields), H200)


def test_torch_can_be_asked_for_on_a_gpu(config: ModelConfig) -> None:
    way = way_of(config, H200, attention="torch")
    assert not way.flashinfer
    assert "--attention torch was asked for" in way.says


@pytest.mark.parametrize("attention", ["auto", "torch"])
@pytest.mark.parametrize(
    "facts", [NO_CUDA, replace(H200, torch_cuda=None), replace(H200, device=None)]
)
def test_without_a_usable_gpu_the_processor_computes(
    config: ModelConfig, facts: GpuFacts, attention: str
) -> None:
    assert gpu_way(config, EngineOptions(attention=attention), facts) is None


@pytest.mark.parametrize(
    ("facts", "why"),
    [(NO_CUDA, "torch is installed without CUDA"), (T4, "compute capability 8.0")],
)
def test_flashinfer_asked_for_where_it_cannot_run_is_refused(
    config: ModelConfig, facts: GpuFacts, why: str
) -> None:
    wanted = EngineOptions(attention="flashinfer")
    message = f"--attention flashinfer: .*{why}"
    with pytest.raises(ValueError, match=message):
        refuse_early(wanted, facts)
    with pytest.raises(ValueError, match=message):
        gpu_way(config, wanted, facts)
    refuse_early(wanted, H200)
    refuse_early(EngineOptions(), facts)


def test_where_a_gpu_might_be_expected_the_log_says_why_there_is_none() -> None:
    assert on_processor(EngineOptions(), NO_CUDA) is None, (
        "nothing is said where nobody expects one"
    )
    found = on_processor(EngineOptions(), GpuFacts(driver_cuda=(13, 0)))
    assert found is not None
    assert found.startswith("Computing on the processor: torch is installed without CUDA")
    assert on_processor(EngineOptions(kernels="torch"), GpuFacts(driver_cuda=(13, 0))) is None
    assert on_processor(EngineOptions(), H200) is None


@pytest.mark.parametrize("kernels", ["amx", "avx512", "avx2", "torch"])
def test_a_kind_of_kernels_is_a_choice_of_the_processor(config: ModelConfig, kernels: str) -> None:
    assert gpu_way(config, EngineOptions(kernels=kernels), H200) is None


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"quantization": "int4"}, "--quantization int4"),
        ({"kv_dtype": "int8"}, "--kv-dtype int8"),
        ({"kv_dtype": "fp32"}, "--kv-dtype fp32"),
        ({"dtype": "fp32", "kv_dtype": "bf16"}, "--kv-dtype bf16"),
        ({"exact": True}, "--exact"),
    ],
)
def test_what_only_the_processors_kernels_can_is_refused_by_name(
    config: ModelConfig, fields: dict[str, Any], name: str
) -> None:
    with pytest.raises(ValueError, match=rf"{name} needs .* NVIDIA H200.*CUDA_VISIBLE_DEVICES="):
        gpu_way(config, EngineOptions(**fields), H200)


@pytest.mark.parametrize("fields", [{"kv_dtype": "bf16"}, {"dtype": "bf16", "kv_dtype": "bf16"}])
def test_a_kv_dtype_that_is_the_weights_is_none_of_these(
    config: ModelConfig, fields: dict[str, Any]
) -> None:
    assert way_of(config, H200, **fields).flashinfer


@pytest.mark.parametrize("attention", ["flashinfer", "torch"])
def test_compiled_kernels_and_another_attention_exclude_each_other(attention: str) -> None:
    with pytest.raises(ValueError, match=f"attention {attention} does not go with kernels avx2"):
        EngineOptions(attention=attention, kernels="avx2")


def test_torch_as_attention_on_a_processor_is_torch_as_kernels(tiny_folder: Path) -> None:
    wanted = EngineOptions(
        model=str(tiny_folder), attention="torch", dtype="fp32", kv_memory="1MiB"
    )
    with Engine.load(wanted) as engine:
        assert engine.info.kernels == "torch"


def test_the_option_is_refused_at_once_in_one_line_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("server.loading.read_gpu", GpuFacts)
    words = ["--attention", "flashinfer", "--port", "0", "--model", "no-such-model"]
    monkeypatch.setattr(sys, "argv", ["server", *words])
    assert main() == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "error: --attention flashinfer: torch is installed without CUDA; install it with CUDA: "
        "make setup GPU=1"
    ]


def test_a_model_that_transformers_computes_is_not_for_flashinfer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    found = TransformersConfig("gpt2", 128, 64)
    monkeypatch.setattr("server.model_choice.read_transformers_config", lambda _: found)
    with pytest.raises(ValueError, match=r"--attention flashinfer .* type gpt2 .*transformers"):
        choose(ModelFolder(tmp_path, "tiny"), EngineOptions(attention="flashinfer"), 1, H200)
    choice = choose(ModelFolder(tmp_path, "tiny"), EngineOptions(dtype="fp32"), 1, H200)
    assert choice.kv_bytes_per_block == 64 * 4 * 16
