"""Weights in fp16, K and V in fp8: where they are taken, and where refused by name."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.gpu.fit import FLASHINFER, TVM_FFI, GpuFacts
from radix_engine.gpu.sizing import graph_bytes, step_bytes
from radix_engine.memory.fp8 import FP8
from radix_engine.model.config import ModelConfig, read_config
from radix_engine.model.served import dtype_name
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import TransformersConfig
from radix_engine.parallel.group import Group
from server import Engine, EngineOptions
from server.config.command import parse
from server.gpu_choice import GpuWay, gpu_way, refuse_early
from server.model_choice import choose, with_gpu
from server.parallel_choice import load_divided, refuse_for_several
from server.text import TextCodec
from tests.gpu.binding import bound_fake
from tests.server.prompts import greedy, ids
from tests.tiny import make_tiny_folder

GIB = 2**30
H200 = GpuFacts(
    torch_cuda="13.0",
    driver_cuda=(13, 0),
    device="NVIDIA H200",
    capability=(9, 0),
    memory_total=2**37,
    memory_free=2**37,
    flashinfer=FLASHINFER,
    tvm_ffi=TVM_FFI,
    has_kernels=True,
)
T4 = replace(H200, device="Tesla T4", capability=(7, 5))
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with heads that FlashInfer's kernels know."""
    path = tmp_path_factory.mktemp("models") / "tiny64"
    return make_tiny_folder(path, tokenizer=True, head_dim=64)


@pytest.fixture(scope="module")
def config(folder: Path) -> ModelConfig:
    return read_config(folder)


def options(**fields: Any) -> EngineOptions:
    return EngineOptions(**fields)


def way_of(config: ModelConfig, facts: GpuFacts = H200, **fields: Any) -> GpuWay:
    way = gpu_way(config, options(**fields), facts)
    assert way is not None
    return way


def test_dtypes_have_their_options_names() -> None:
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn)
    assert [dtype_name(dtype) for dtype in dtypes] == ["fp32", "bf16", "fp16", "fp8"]


def test_fp16_is_taken_on_a_gpu_and_auto_stays_bf16(config: ModelConfig) -> None:
    assert way_of(config).dtype == torch.bfloat16
    way = way_of(config, dtype="fp16")
    assert (way.dtype, way.kv_dtype, way.flashinfer) == (torch.float16, torch.float16, True)
    assert way_of(config, dtype="fp16", kv_dtype="fp16") == way
    # Torch computes in fp16 where FlashInfer does not fit, too.
    way = way_of(config, T4, dtype="fp16")
    assert (way.dtype, way.flashinfer) == (torch.float16, False)


@pytest.mark.parametrize("dtype", ["auto", "bf16", "fp16"])
def test_fp8_is_taken_for_k_and_v_beside_weights_in_16_bits(
    config: ModelConfig, dtype: str
) -> None:
    way = way_of(config, dtype=dtype, kv_dtype="fp8")
    assert (way.flashinfer, way.fp8, way.kv_dtype) == (True, True, FP8)
    assert way.dtype == way_of(config, dtype=dtype).dtype
    assert not way_of(config, dtype=dtype).fp8


@pytest.mark.parametrize(
    ("facts", "change", "fields", "why"),
    [
        (H200, {}, {"attention": "torch"}, "--attention torch was asked for"),
        (H200, {}, {"dtype": "fp32"}, "not in float32"),
        (H200, {"head_dim": 80}, {}, "these have 80"),
        (T4, {}, {"dtype": "fp16"}, "compute capability 8.0"),
        (replace(H200, flashinfer=None), {}, {}, "FlashInfer is not installed"),
    ],
)
def test_fp8_is_refused_where_torch_would_attend(
    config: ModelConfig,
    facts: GpuFacts,
    change: dict[str, Any],
    fields: dict[str, Any],
    why: str,
) -> None:
    wanted = options(kv_dtype="fp8", **fields)
    message = f"^--kv-dtype fp8 needs FlashInfer's attention, .*{why}.*leave --kv-dtype out$"
    with pytest.raises(ValueError, match=message):
        gpu_way(replace(config, **change), wanted, facts)


def test_int8_on_a_gpu_is_refused_with_fp8_as_what_there_is(config: ModelConfig) -> None:
    message = r"^--kv-dtype int8 needs the kernels for the processor, .*NVIDIA H200; take --kv-dtyp"
    with pytest.raises(ValueError, match=message + "e fp8, leave it out, or hide the GPU"):
        gpu_way(config, options(kv_dtype="int8"), H200)
    with pytest.raises(ValueError, match=r"^--kv-dtype int8 .*take --kv-dtype fp8 on GPUs, leave"):
        refuse_for_several(options(kv_dtype="int8", tensor_parallel=2))


def test_k_and_v_in_other_16_bits_than_the_weights_are_refused(config: ModelConfig) -> None:
    with pytest.raises(ValueError, match="--kv-dtype fp16 needs --dtype fp16, and not bf16"):
        gpu_way(config, options(kv_dtype="fp16"), H200)
    with pytest.raises(ValueError, match="--kv-dtype bf16 needs the kernels for the processor"):
        gpu_way(config, options(dtype="fp16", kv_dtype="bf16"), H200)


@pytest.mark.parametrize(
    ("fields", "name", "possible"),
    [
        ({"dtype": "fp16"}, "--dtype fp16", "takes auto, bf16 or fp32"),
        ({"kv_dtype": "fp16"}, "--kv-dtype fp16", "takes auto, bf16, fp32 or, .*int8"),
        ({"kv_dtype": "fp8"}, "--kv-dtype fp8", "takes auto, bf16, fp32 or, .*int8"),
    ],
)
@pytest.mark.parametrize(
    ("facts", "more", "why"),
    [
        (GpuFacts(), {}, "torch is installed without CUDA"),
        (replace(H200, device=None), {}, "this process sees no GPU"),
        (H200, {"kernels": "torch"}, "--kernels torch was asked for"),
        (H200, {"kernels": "avx2"}, "--kernels avx2 was asked for"),
        (GpuFacts(), {"tensor_parallel": 2}, "torch is installed without CUDA"),
    ],
)
def test_on_a_processor_what_needs_a_gpu_is_refused_before_a_model_is_looked_for(
    fields: dict[str, Any],
    name: str,
    possible: str,
    facts: GpuFacts,
    more: dict[str, Any],
    why: str,
) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is for a GPU; .*{possible}.*{why}"):
        refuse_early(options(**fields, **more), facts)
    refuse_early(options(**more), facts)
    if not more:
        refuse_early(options(**fields), H200)


@pytest.mark.parametrize("fields", [{"dtype": "fp16"}, {"kv_dtype": "fp8"}])
def test_a_model_that_transformers_computes_takes_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    found = TransformersConfig("gpt2", 128, 64)
    monkeypatch.setattr("server.model_choice.read_transformers_config", lambda _: found)
    with pytest.raises(ValueError, match=r"is for a GPU; .*type gpt2 is computed by transformers"):
        choose(ModelFolder(tmp_path, "tiny"), options(**fields), 1, H200)


def test_the_command_line_takes_both() -> None:
    engine = parse(["--dtype", "fp16", "--kv-dtype", "fp8"]).engine
    assert (engine.dtype, engine.kv_dtype) == ("fp16", "fp8")


# From here on the GPU is a processor.


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_memory_is_counted_at_a_byte_a_number(
    folder: Path, config: ModelConfig, device: str
) -> None:
    """On "cuda" with graphs, whose padding needs a block, too. As many KV heads as query heads, so
    that a step is widest where K and V are rounded."""
    config = replace(config, num_kv_heads=4)

    def choice(fp8: bool, **fields: Any) -> Any:
        way = GpuWay(torch.device(device), torch.float16, True, "", fp8)
        memory = (8 * GIB, 8 * GIB)
        return with_gpu(
            ModelFolder(folder, "tiny"), config, options(**fields), way, lambda _: memory
        )

    # 2 layers, K and V, 4 heads of 64.
    assert choice(True).kv_bytes_per_block == 16 * 2 * 2 * 4 * 64
    assert choice(False).kv_bytes_per_block == 2 * 16 * 2 * 2 * 4 * 64
    reserve = step_bytes(config, torch.float16, 2048, 64, flashinfer=True, fp8=True)
    if device == "cuda":
        reserve += graph_bytes(config, torch.float16, 64, 16, fp8=True)
    assert choice(True).kv_memory(True) == int(8 * GIB * 0.9) - reserve
    # Of a GPU among two, each with a half of the heads.
    assert choice(True, tensor_parallel=2).kv_bytes_per_block == 16 * 2 * 2 * 2 * 64


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is imported as flashinfer."""
    fake = bound_fake()
    monkeypatch.setenv("FLASHINFER_USE_CUDA_NORM", "1")  # put back afterwards
    monkeypatch.setitem(sys.modules, "flashinfer", fake)
    return fake


@pytest.mark.parametrize(("fp8", "kept"), [(False, "fp16"), (True, "fp8")])
def test_an_engine_says_what_it_keeps_and_in_what(
    folder: Path, config: ModelConfig, flashinfer: Any, fp8: bool, kept: str
) -> None:
    way = GpuWay(CPU, torch.float16, True, "", fp8)
    model = with_gpu(ModelFolder(folder, "tiny"), config, options(), way).load(None)
    with Engine(model, TextCodec(folder), 8) as engine:
        info = engine.info
        assert (info.weights, info.kv_dtype, info.kernels) == ("fp16", kept, "flashinfer")
        assert info.kv_bytes_per_token == 2 * 2 * 2 * 64 * (1 if fp8 else 2)
        assert len(engine.generate([ids(20, 1)], greedy(4))[0].token_ids) == 4
    assert flashinfer.calls["append_paged_kv_cache"] > 0


@pytest.mark.parametrize(("fp8", "kept"), [(False, "fp32"), (True, "fp8")])
def test_a_divided_model_keeps_them_in_each_process(
    folder: Path, flashinfer: Any, monkeypatch: pytest.MonkeyPatch, fp8: bool, kept: str
) -> None:
    """A group of one process, which joins itself over gloo."""

    def on_processors(size: int, _: str, **settings: Any) -> Group:
        return Group(size, "gloo", **settings)

    monkeypatch.setattr("server.parallel_choice.Group", on_processors)
    way = GpuWay(CPU, torch.float32, True, "", fp8)
    model = load_divided(ModelFolder(folder, "tiny"), torch.float32, 1, way)
    assert model.processes is not None
    try:
        assert (model.weights, model.kv_dtype, model.kernels) == ("fp32", kept, "flashinfer")
        runner = model.make_runner(8, 16)
        assert runner.memory.bytes_per_block == 16 * 2 * 2 * 2 * 64 * (1 if fp8 else 4)
    finally:
        model.processes.close()
    assert flashinfer.calls["append_paged_kv_cache"] > 0
