"""What is found of a GPU and of FlashInfer, and the line that says what does not fit."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from radix_engine.gpu import fit
from radix_engine.gpu.fit import (
    FLASHINFER,
    TVM_FFI,
    GpuFacts,
    load_flashinfer,
    read_gpu,
    why_no_gpu,
    why_not,
    why_not_model,
)
from radix_engine.model.config import ModelConfig, parse_config

ROOT = Path(__file__).resolve().parent.parent.parent
NORM = "FLASHINFER_USE_CUDA_NORM"
PLAIN = GpuFacts(torch_cuda="13.0")
ALL_FITS = GpuFacts(
    torch_cuda="13.0",
    driver="580.65.06",
    driver_cuda=(13, 0),
    device="NVIDIA H200",
    capability=(9, 0),
    memory_total=2**37,
    memory_free=2**36,
    flashinfer=FLASHINFER,
    tvm_ffi=TVM_FFI,
    has_kernels=True,
)


def config(**fields: Any) -> ModelConfig:
    raw = {
        "model_type": "llama",
        "hidden_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "head_dim": 64,
        "intermediate_size": 512,
        "vocab_size": 100,
        "max_position_embeddings": 128,
    }
    return parse_config(raw | fields)


def test_nothing_is_said_where_all_fits() -> None:
    assert why_no_gpu(ALL_FITS) is None
    assert why_not(ALL_FITS) is None
    # compiled kernels come as a build for one CUDA
    assert why_not(replace(ALL_FITS, flashinfer=f"{FLASHINFER}+cu130")) is None


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (GpuFacts(), ("torch", "without CUDA", "make setup GPU=1")),
        (PLAIN, ("no NVIDIA driver", "CUDA 13.0", "container")),
        (
            replace(PLAIN, driver="550.54.15", driver_cuda=(12, 4)),
            ("driver 550.54.15 is too old", "up to 12.4", "built for 13.0", "update the driver"),
        ),
        (replace(PLAIN, driver_cuda=(12, 4)), ("driver is too old", "torch for CUDA 12")),
        # a driver runs all minor versions of its major one
        (replace(PLAIN, torch_cuda="13.2", driver_cuda=(13, 0)), ("no GPU", "nvidia-smi")),
        (replace(PLAIN, device_error="RuntimeError: busy"), ("RuntimeError: busy", "nvidia-smi")),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_told_in_one_line_with_a_remedy(
    facts: GpuFacts, words: tuple[str, ...]
) -> None:
    line = why_no_gpu(facts)
    assert line is not None
    assert "\n" not in line
    assert [each for each in words if each not in line] == []
    assert why_not(facts) == line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"capability": (7, 5)}, ("8.0", "NVIDIA H200 has 7.5", "--attention torch")),
        ({"capability": None}, ("8.0", "--attention torch")),
        ({"flashinfer": None}, ("not installed", "make setup GPU=1", FLASHINFER, TVM_FFI)),
        ({"flashinfer": "0.7.4"}, ("flashinfer-python 0.7.4", f"needs {FLASHINFER}", "pip")),
        ({"tvm_ffi": "0.1.9"}, ("apache-tvm-ffi 0.1.9", f"needs {TVM_FFI}", "pip install")),
        ({"tvm_ffi": None}, ("apache-tvm-ffi is not installed", "pip install")),
        ({"import_error": "OSError: libx"}, ("cannot be imported (OSError: libx)", "pip install")),
        ({"has_kernels": False}, ("no nvcc", "CUDA_HOME", "flashinfer-jit-cache")),
    ],
)
def test_what_keeps_flashinfer_from_a_gpu_is_told_in_one_line_with_a_remedy(
    change: dict[str, Any], words: tuple[str, ...]
) -> None:
    facts = replace(ALL_FITS, **change)
    line = why_not(facts)
    assert line is not None
    assert "\n" not in line
    assert [each for each in words if each not in line] == []
    assert why_no_gpu(facts) is None, "torch can compute there"


@pytest.mark.parametrize(
    ("fields", "dtype", "words"),
    [
        ({}, torch.float32, "not in float32"),
        ({"head_dim": 80}, torch.bfloat16, "64, 128, 256 dimensions, and these have 80"),
        ({"intermediate_size": 508}, torch.bfloat16, "multiple of 8, and this one is 508"),
    ],
)
def test_a_model_that_the_kernels_do_not_cover_is_told(
    fields: dict[str, Any], dtype: torch.dtype, words: str
) -> None:
    assert words in (why_not_model(config(**fields), dtype) or "")


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_a_model_that_they_cover_is_not(head_dim: int) -> None:
    assert why_not_model(config(head_dim=head_dim), torch.bfloat16) is None


def test_the_versions_are_those_that_the_gpu_extra_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]["gpu"]) == {
        f"flashinfer-python=={FLASHINFER}",
        f"apache-tvm-ffi=={TVM_FFI}",
    }


def test_no_module_imports_flashinfer_by_itself() -> None:
    importing = [
        path.name
        for layer in ("radix_engine", "scheduler", "server", "workloads")
        for path in (ROOT / layer).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Import) and any(a.name == "flashinfer" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flashinfer"))
    ]
    assert importing == []


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19", "535.129.03"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Rel", "570.86.15"),
        ("something else", None),
        (None, None),
    ],
)
def test_the_drivers_version_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, version: str | None
) -> None:
    if text is not None:
        folder = tmp_path / "proc/driver/nvidia"
        folder.mkdir(parents=True)
        (folder / "version").write_text(text + "\n")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert read_gpu(tmp_path).driver == version


def test_without_cuda_in_torch_nothing_else_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unasked(*_: object) -> None:
        raise AssertionError("asked for")

    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "is_available", unasked)
    monkeypatch.setattr(importlib.metadata, "version", unasked)
    monkeypatch.setattr(fit, "_driver_cuda", lambda: None)
    assert read_gpu(tmp_path) == GpuFacts()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A machine on which all fits, as torch and the packages' metadata tell it; its FlashInfer."""
    module = ModuleType("flashinfer")
    (tmp_path / "cuda/bin").mkdir(parents=True)
    (tmp_path / "cuda/bin/nvcc").touch()
    versions = {"flashinfer-python": FLASHINFER, "apache-tvm-ffi": TVM_FFI}
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8 + index, 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (70 + index, 80))
    monkeypatch.setattr(fit, "_driver_cuda", lambda: (13, 1))
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setenv(NORM, "0")
    monkeypatch.delenv(NORM)
    return module


@pytest.mark.usefixtures("gpu")
def test_a_machine_where_all_fits_is_read(tmp_path: Path) -> None:
    facts = read_gpu(tmp_path)
    assert facts == GpuFacts(
        torch_cuda="13.0",
        driver_cuda=(13, 1),
        device="GPU 1",
        index=1,
        capability=(9, 0),
        memory_total=80,
        memory_free=71,
        flashinfer=FLASHINFER,
        tvm_ffi=TVM_FFI,
        has_kernels=True,
    )
    assert why_not(facts) is None


@pytest.mark.usefixtures("gpu")
def test_a_flashinfer_that_cannot_be_imported_is_read_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    error = read_gpu(tmp_path).import_error
    assert error is not None
    assert error.startswith("ModuleNotFoundError: ")


@pytest.mark.usefixtures("gpu")
def test_a_flashinfer_of_another_version_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)  # importing it would be an error
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.7.4")
    facts = read_gpu(tmp_path)
    assert (facts.flashinfer, facts.tvm_ffi, facts.import_error) == ("0.7.4", "0.7.4", None)


@pytest.mark.usefixtures("gpu")
def test_a_cuda_folder_without_a_compiler_is_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert not read_gpu(tmp_path).has_kernels


@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_cannot_be_asked_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise RuntimeError("CUDA error:\nunknown error")

    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    facts = read_gpu(tmp_path)
    assert facts.device is None
    assert facts.device_error == "RuntimeError: CUDA error: unknown error"


def test_flashinfer_is_imported_with_norms_that_need_no_further_package(gpu: ModuleType) -> None:
    assert load_flashinfer() is gpu
    assert os.environ[NORM] == "1"


def test_whoever_chose_its_norms_keeps_them(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NORM, "0")
    assert load_flashinfer() is gpu
    assert os.environ[NORM] == "0"


@pytest.mark.usefixtures("gpu")
def test_a_failing_import_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(ValueError, match=r"cannot be imported .*make setup GPU=1") as failure:
        load_flashinfer()
    assert "\n" not in str(failure.value)
