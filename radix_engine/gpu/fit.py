"""What GPU this machine has, and whether torch and FlashInfer can compute on it.

Looking and judging are apart: `read_gpu` looks, the rest decides from what it found.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from radix_engine.model.config import ModelConfig

FLASHINFER = "0.6.18.post1"
TVM_FFI = "0.1.15.post2"
"""The versions that the `gpu` extra pins, and that the backend is written for."""

LEAST_CAPABILITY = (8, 0)
"""The first compute capability that multiplies in bf16, as FlashInfer's kernels do."""

HEAD_DIMS = (64, 128, 256)
"""The sizes of a head for which FlashInfer's attention, append and rotation are all right."""

_INSTALL = f"pip install flashinfer-python=={FLASHINFER} apache-tvm-ffi=={TVM_FFI}"


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What was found. None: there is none, or nothing could use it.

    ``torch_cuda``: the CUDA that torch is built for. ``driver``: the version of NVIDIA's driver,
    ``driver_cuda`` the newest CUDA that it runs. ``device``: the name of the GPU that torch uses,
    ``index`` its number, ``device_error`` why it cannot be used, ``memory_total`` and
    ``memory_free`` its bytes.
    ``flashinfer`` and ``tvm_ffi``: installed versions; ``has_kernels``: whether FlashInfer's
    kernels come compiled, or a compiler for them is there; ``import_error``: why it cannot be
    imported. Of FlashInfer only what a GPU can use is looked for.
    """

    torch_cuda: str | None = None
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    device: str | None = None
    index: int = 0
    device_error: str | None = None
    capability: tuple[int, int] | None = None
    memory_total: int = 0
    memory_free: int = 0
    flashinfer: str | None = None
    tvm_ffi: str | None = None
    has_kernels: bool = False
    import_error: str | None = None


def why_no_gpu(facts: GpuFacts) -> str | None:
    """Why torch cannot compute on a GPU here, and what to change, in one line; None: it can."""
    if facts.torch_cuda is None:
        return "torch is installed without CUDA; install it with CUDA: make setup GPU=1"
    if facts.device is not None:
        return None
    if facts.device_error is not None:
        return f"the GPU cannot be used ({facts.device_error}); see whether nvidia-smi works"
    if facts.driver_cuda is None:
        return (
            f"there is no NVIDIA driver; install one that runs CUDA {facts.torch_cuda}, or give "
            "this container access to the GPU"
        )
    if facts.driver_cuda[0] < int(facts.torch_cuda.split(".")[0]):
        newest = ".".join(map(str, facts.driver_cuda))
        return (
            f"the NVIDIA driver{_named(facts.driver)} is too old: it runs CUDA up to {newest}, and "
            f"torch is built for {facts.torch_cuda}; update the driver, or install torch for CUDA "
            f"{facts.driver_cuda[0]}"
        )
    return "this process sees no GPU; look at nvidia-smi and CUDA_VISIBLE_DEVICES"


def why_not(facts: GpuFacts) -> str | None:
    """Why FlashInfer cannot compute here, and what to change, in one line; None: it can."""
    if (line := why_no_gpu(facts)) is not None:
        return line
    if facts.capability is None or facts.capability < LEAST_CAPABILITY:
        has = ".".join(map(str, facts.capability or ("an unknown one",)))
        return (
            f"FlashInfer's kernels and bf16 need compute capability "
            f"{'.'.join(map(str, LEAST_CAPABILITY))} or more, and {facts.device} has {has}; "
            "--attention torch does without"
        )
    if facts.flashinfer is None:
        return f"FlashInfer is not installed; install it: make setup GPU=1, or {_INSTALL}"
    for package, version, pin in (
        ("flashinfer-python", facts.flashinfer, FLASHINFER),
        ("apache-tvm-ffi", facts.tvm_ffi, TVM_FFI),
    ):
        if version is None:
            return f"{package} is not installed, which FlashInfer needs; {_INSTALL}"
        if version.split("+")[0] != pin:
            return f"{package} {version} is installed, and this engine needs {pin}; {_INSTALL}"
    if facts.import_error is not None:
        return f"FlashInfer cannot be imported ({facts.import_error}); install it again: {_INSTALL}"
    if not facts.has_kernels:
        return (
            "FlashInfer compiles its kernels when they are first used, and there is no nvcc; "
            f"install the CUDA {facts.torch_cuda} toolkit, with CUDA_HOME set to its folder, or "
            f"have them compiled: package flashinfer-jit-cache {FLASHINFER}"
        )
    return None


def why_not_model(config: ModelConfig, dtype: torch.dtype) -> str | None:
    """Why FlashInfer's kernels do not cover a model in this dtype, in one line; None: they do."""
    if dtype not in (torch.bfloat16, torch.float16):
        return f"FlashInfer computes in 16 bits, not in {str(dtype).removeprefix('torch.')}"
    if config.head_dim not in HEAD_DIMS:
        sizes = ", ".join(map(str, HEAD_DIMS))
        return f"FlashInfer computes heads of {sizes} dimensions, and these have {config.head_dim}"
    if config.intermediate_size * dtype.itemsize % 16:
        return (
            "FlashInfer's activation needs an intermediate_size that is a multiple of "
            f"{16 // dtype.itemsize}, and this one is {config.intermediate_size}"
        )
    return None


def read_gpu(root: Path = Path("/")) -> GpuFacts:
    """Look at this machine. Takes up to seconds, and GPU memory, where there is a GPU: it is
    initialised, and FlashInfer imported. ``root`` is the folder that holds proc."""
    torch_cuda = torch.version.cuda
    driver = _driver_version(root)
    driver_cuda = _driver_cuda()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch has to say here is in the facts
        usable = torch_cuda is not None and torch.cuda.is_available()
    facts = GpuFacts(torch_cuda=torch_cuda, driver=driver, driver_cuda=driver_cuda)
    if not usable:
        return facts
    try:
        facts = _with_device(facts)
    except Exception as error:  # whatever the driver has to say
        return replace(facts, device_error=_one_line(error))
    return _with_flashinfer(facts)


def load_flashinfer() -> Any:
    """The package, imported. Raises ValueError with a message for the user where it cannot be.

    The first import takes seconds.
    """
    try:
        return _import_flashinfer()
    except Exception as error:
        raise ValueError(
            f"FlashInfer cannot be imported ({_one_line(error)}); install the gpu extra: "
            f"make setup GPU=1, or {_INSTALL}"
        ) from error


def gpu_memory(device: torch.device) -> tuple[int, int]:
    """Bytes of a GPU that are free, and all it has. What torch only keeps for later is free."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return free, total


def _with_device(facts: GpuFacts) -> GpuFacts:
    index = torch.cuda.current_device()
    free, total = torch.cuda.mem_get_info(index)
    return replace(
        facts,
        device=torch.cuda.get_device_name(index),
        index=index,
        capability=torch.cuda.get_device_capability(index),
        memory_total=total,
        memory_free=free,
    )


def _with_flashinfer(facts: GpuFacts) -> GpuFacts:
    """Imports it only where everything else fits."""
    facts = replace(
        facts,
        flashinfer=_installed("flashinfer-python"),
        tvm_ffi=_installed("apache-tvm-ffi"),
        has_kernels=_has_kernels(),
    )
    if why_not(facts) is None:
        try:
            _import_flashinfer()
        except Exception as error:
            return replace(facts, import_error=_one_line(error))
    return facts


def _import_flashinfer() -> Any:
    # Its norms are otherwise compiled with a package that the gpu extra leaves out. Read at import.
    os.environ.setdefault("FLASHINFER_USE_CUDA_NORM", "1")
    return importlib.import_module("flashinfer")


def _driver_version(root: Path) -> str | None:
    try:
        text = (root / "proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", text)
    return found[1] if found is not None else None


def _driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver runs, as its library says, which initialises nothing."""
    version = ctypes.c_int()
    try:
        status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    if status != 0 or version.value < 1000:
        return None
    return version.value // 1000, version.value % 1000 // 10


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _has_kernels() -> bool:
    """Compiled ahead, or nvcc where FlashInfer looks for it."""
    if importlib.util.find_spec("flashinfer_jit_cache") is not None:
        return True
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if folder := os.environ.get(variable):
            return (Path(folder) / "bin/nvcc").exists()
    return shutil.which("nvcc") is not None or Path("/usr/local/cuda/bin/nvcc").exists()


def _named(version: str | None) -> str:
    return "" if version is None else f" {version}"


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
