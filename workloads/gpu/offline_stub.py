"""The stand-in for CUDA's runtime in this process, and FlashInfer on top of it."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch

from workloads.gpu.offline_launches import Launch, PlanInfo
from workloads.gpu.offline_modules import check_torch

_DLPACK_CUDA = 2


class _Record(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_size_t),
    )


class Stub:
    """The loaded stand-in: what was launched and copied since the last `reset`.

    To be made before FlashInfer loads a module: its modules then find these functions, and no
    other runtime is loaded. ``driver`` satisfies modules that ask for the driver's library.
    """

    def __init__(self, runtime: Path, driver: Path, mode: int = ctypes.RTLD_GLOBAL) -> None:
        ctypes.CDLL(str(driver), mode)
        self._library = ctypes.CDLL(str(runtime), mode)
        for name in ("stub_num_launches", "stub_num_copies"):
            getattr(self._library, name).restype = ctypes.c_size_t
        self._library.stub_launch.argtypes = [ctypes.c_size_t]
        self._library.stub_launch.restype = ctypes.POINTER(_Record)

    def reset(self) -> None:
        """Forget all launches and copies."""
        self._library.stub_reset()

    @property
    def copies(self) -> int:
        """How often memory was copied to the device."""
        return int(self._library.stub_num_copies())

    def launches(self) -> list[Launch]:
        """All launches, in order."""
        count = self._library.stub_num_launches()
        return [_launch(self._library.stub_launch(i).contents) for i in range(count)]


def _launch(record: Any) -> Launch:
    grid, block = (cast(tuple[int, int, int], tuple(n)) for n in (record.grid, record.block))
    return Launch((record.kernel or b"").decode(), grid, block, int(record.shared_bytes))


def import_flashinfer(modules: Path) -> Any:
    """FlashInfer, which then takes compiled modules from ``modules`` only and compiles none.

    Changes ``torch.empty`` of this process, since pinned memory needs a driver, and the modules
    that take tensors on a GPU only. Raises RuntimeError as `check_torch` does, and where FlashInfer
    looks for modules elsewhere.
    """
    check_torch()
    os.environ["FLASHINFER_DISABLE_JIT"] = "1"
    unpinned = torch.empty

    @functools.wraps(unpinned)
    def empty(*args: Any, pin_memory: bool = False, **settings: Any) -> torch.Tensor:
        return unpinned(*args, **settings)

    torch.empty = empty  # type: ignore[assignment]
    flashinfer = importlib.import_module("flashinfer")
    found = importlib.import_module("flashinfer.jit.env").FLASHINFER_AOT_DIR
    if Path(found).resolve() != modules.resolve():
        raise RuntimeError(f"FlashInfer looks for compiled modules in {found}, not in {modules}")
    for name in ("page", "cascade"):
        module, getter = importlib.import_module(f"flashinfer.{name}"), f"get_{name}_module"
        setattr(module, getter, functools.partial(_OnDevice, getattr(module, getter)))
    return flashinfer


class _OnDevice:
    """A compiled module whose functions are given tensors that say they are on a GPU."""

    def __init__(self, get_module: Callable[[], Any]) -> None:
        self._module = get_module()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        return lambda *arguments: function(*map(_on_device, arguments))


def _on_device(value: Any) -> Any:
    """The same memory as a tensor of the first CUDA device; anything but a tensor as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    capsule = value.__dlpack__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # DLPack's struct begins with the address of the data; the type of device is behind it.
    address = get_pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)
    ctypes.c_int32.from_address(address).value = _DLPACK_CUDA
    return importlib.import_module("tvm_ffi").from_dlpack(capsule)


def asked_modules() -> set[str]:
    """The names of all modules that FlashInfer has asked for in this process."""
    core = importlib.import_module("flashinfer.jit.core")
    return set(core.jit_spec_registry.get_all_specs())


class Watched:
    """FlashInfer, whose wrappers say when they are planned: ``planned`` has the wrapper of each
    plan since the last `reset`, ``plan_us`` the microseconds of each."""

    def __init__(self, flashinfer: Any) -> None:
        self._flashinfer = flashinfer
        self.planned: list[Any] = []
        self.plan_us: list[float] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._flashinfer, name)
        return functools.partial(self._make, value) if isinstance(value, type) else value

    def reset(self) -> None:
        """Forget all plans."""
        self.planned.clear()
        self.plan_us.clear()

    def _make(self, wrapper_class: type, *args: Any, **settings: Any) -> Any:
        wrapper: Any = wrapper_class(*args, **settings)
        plan = wrapper.plan

        def watched_plan(*args: Any, **settings: Any) -> None:
            began = time.perf_counter_ns()
            plan(*args, **settings)
            self.plan_us.append((time.perf_counter_ns() - began) / 1000)
            self.planned.append(wrapper)

        wrapper.plan = watched_plan
        return wrapper


def plans_of(wrapper: Any) -> tuple[PlanInfo, ...]:
    """The plan of a wrapper, or of each level of a cascade's."""
    levels = getattr(wrapper, "_batch_prefill_wrappers", [wrapper])
    return tuple(PlanInfo.read(list(level._plan_info)) for level in levels)
