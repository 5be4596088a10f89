"""Whether a model is computed on a GPU, and by what; on a machine that has none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radix_engine.gpu.fit import FLASHINFER, TVM_FFI, GpuFacts
from radix_engine.gpu.sizing import weight_bytes
from radix_engine.model.config import ModelConfig, read_config
from radix_engine.model.source import ModelFolder
from radix_engine.model.transformers_config import TransformersConfig
from scheduler import Limits
from server import Engine, EngineOptions
from server.__main__ import main
from server.gpu_choice import GpuWay, gpu_way, on_processor, refuse_early
from server.model_choice import choose, with_gpu
from server.text import TextCodec
from tests.gpu.binding import bound_fake
from tests.gpu.fake_flashinfer import FakeFlashInfer
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids
from tests.tiny import make_tiny_folder

GIB = 2**30
NO_CUDA = GpuFacts()
H200 = GpuFacts(
    torch_cuda="13.0",
    driver_cuda=(13, 0),
    device="NVIDIA H200",
    index=2,
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


def way_of(config: ModelConfig, facts: GpuFacts, **fields: Any) -> GpuWay:
    way = gpu_way(config, options(**fields), facts)
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
        gpu_way(model, options(attention="flashinfer", **fields), H200)


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
    assert gpu_way(config, options(attention=attention), facts) is None


@pytest.mark.parametrize(
    ("facts", "why"),
    [(NO_CUDA, "torch is installed without CUDA"), (T4, "compute capability 8.0")],
)
def test_flashinfer_asked_for_where_it_cannot_run_is_refused(
    config: ModelConfig, facts: GpuFacts, why: str
) -> None:
    wanted = options(attention="flashinfer")
    message = f"--attention flashinfer: .*{why}"
    with pytest.raises(ValueError, match=message):
        refuse_early(wanted, facts)
    with pytest.raises(ValueError, match=message):
        gpu_way(config, wanted, facts)
    refuse_early(wanted, H200)
    refuse_early(options(), facts)


def test_where_a_gpu_might_be_expected_the_log_says_why_there_is_none() -> None:
    assert on_processor(options(), NO_CUDA) is None, "nothing is said where nobody expects one"
    found = on_processor(options(), GpuFacts(driver_cuda=(13, 0)))
    assert found is not None
    assert found.startswith("Computing on the processor: torch is installed without CUDA")
    assert on_processor(options(kernels="torch"), GpuFacts(driver_cuda=(13, 0))) is None
    assert on_processor(options(), H200) is None


@pytest.mark.parametrize("kernels", ["amx", "avx512", "avx2", "torch"])
def test_a_kind_of_kernels_is_a_choice_of_the_processor(config: ModelConfig, kernels: str) -> None:
    assert gpu_way(config, options(kernels=kernels), H200) is None


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
        gpu_way(config, options(**fields), H200)


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
    wanted = options(model=str(tiny_folder), attention="torch", dtype="fp32", kv_memory="1MiB")
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
        choose(ModelFolder(tmp_path, "tiny"), options(attention="flashinfer"), 1, H200)
    choice = choose(ModelFolder(tmp_path, "tiny"), options(dtype="fp32"), 1, H200)
    assert choice.kv_bytes_per_block == 64 * 4 * 16


# From here on the GPU is a processor.


def on_cpu(flashinfer: bool) -> GpuWay:
    return GpuWay(CPU, torch.float32, flashinfer, "")


def memory_of(free: int, total: int) -> Any:
    return lambda device: (free, total)


def test_weights_that_are_yet_to_be_loaded_leave_less_for_k_and_v(
    folder: Path, config: ModelConfig
) -> None:
    choice = with_gpu(
        ModelFolder(folder, "tiny"),
        config,
        options(),
        on_cpu(flashinfer=True),
        memory_of(2 * GIB, 3 * GIB),
    )
    loaded, before = choice.kv_memory(True), choice.kv_memory(False)
    assert loaded - before == weight_bytes(config, torch.float32)
    assert choice.kv_bytes_per_block == 16 * 2 * 2 * 2 * 64 * 4


def test_the_steps_limits_decide_what_is_kept_for_a_step(folder: Path, config: ModelConfig) -> None:
    def room(limits: Limits) -> int:
        wanted = options(limits=limits, gpu_memory_utilization=0.5)
        read = memory_of(8 * GIB, 8 * GIB)
        model = ModelFolder(folder, "tiny")
        return with_gpu(model, config, wanted, on_cpu(flashinfer=True), read).kv_memory(True)

    assert room(Limits()) == room(Limits(max_step_tokens=2048))
    rows = 4 * (3 * 64 + 4 * 4 * 64 + 3 * 2 * 64)  # residual, norm, output; queries; keys
    assert room(Limits(1048)) - room(Limits(2048)) == 1000 * rows
    assert room(Limits(max_running=64)) - room(Limits(max_running=65)) == 512 * 64


def answers_on(folder: Path, way: GpuWay) -> tuple[list[tuple[int, ...]], Engine]:
    config = read_config(folder)
    choice = with_gpu(ModelFolder(folder, "tiny"), config, options(), way)
    with Engine(choice.load(None), TextCodec(folder), 64) as engine:
        prompts = [ids(40, 1), ids(40, 1)[:33] + ids(10, 2), ids(7, 3)]
        answers = engine.generate(prompts, greedy(6))
        answers += engine.generate(prompts, greedy(6))
        return [answer.token_ids for answer in answers], engine


def test_an_engine_on_a_gpu_answers_as_one_on_torch(folder: Path, make_engine: MakeEngine) -> None:
    prompts = [ids(40, 1), ids(40, 1)[:33] + ids(10, 2), ids(7, 3)]
    expected = [
        answer.token_ids for answer in make_engine(folder=folder).generate(prompts, greedy(6))
    ]
    found, engine = answers_on(folder, on_cpu(flashinfer=False))
    assert found == expected * 2
    assert (engine.info.kernels, engine.info.exact) == ("torch-cuda", False)
    assert engine.info.limits.max_step_tokens == 2048


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is imported as flashinfer."""
    fake = bound_fake()
    monkeypatch.setenv("FLASHINFER_USE_CUDA_NORM", "1")  # put back afterwards
    monkeypatch.setitem(sys.modules, "flashinfer", fake)
    return fake


def test_an_engine_with_flashinfer_answers_as_one_on_torch(
    folder: Path, make_engine: MakeEngine, flashinfer: FakeFlashInfer
) -> None:
    prompts = [ids(40, 1), ids(40, 1)[:33] + ids(10, 2), ids(7, 3)]
    expected = [
        answer.token_ids for answer in make_engine(folder=folder).generate(prompts, greedy(6))
    ]
    found, engine = answers_on(folder, on_cpu(flashinfer=True))
    assert found == expected * 2
    assert (engine.info.kernels, engine.info.weights) == ("flashinfer", "fp32")
    assert flashinfer.calls["append_paged_kv_cache"] > 0
    assert flashinfer.calls["fused_add_rmsnorm"] > 0


def test_k_and_v_that_cannot_be_allocated_are_told(
    folder: Path, config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    model = with_gpu(ModelFolder(folder, "tiny"), config, options(), on_cpu(False)).load(None)
    monkeypatch.setattr("radix_engine.gpu.served.KVMemory", none_left)
    with pytest.raises(ValueError, match=r"KV memory of 64\.0 KiB .*--gpu-memory-utilization"):
        model.make_runner(2, 16)
