"""What the processor can do, as far as the kernels ask for it."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor's name and the names of its features, as Linux lists them."""

    name: str
    features: frozenset[str]


@dataclass(frozen=True, slots=True)
class KernelKind:
    """One way to build the kernels: the compiler's options, and the features it runs on.

    ``bf16``: whether it multiplies in bf16; without, bf16 is only how numbers are stored.
    """

    name: str
    options: tuple[str, ...]
    features: frozenset[str]
    bf16: bool


_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi2"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
_BF16 = _AVX512 | {"avx512_bf16", "avx512_vnni"}
_AMX = _BF16 | {"amx_tile", "amx_bf16"}
_OPTIONS_AVX512 = ("-march=x86-64-v4",)
_OPTIONS_BF16 = (*_OPTIONS_AVX512, "-mavx512vnni", "-mavx512bf16")

KINDS = (
    KernelKind("amx", (*_OPTIONS_BF16, "-mamx-tile", "-mamx-bf16"), _AMX, bf16=True),
    KernelKind("avx512_bf16", _OPTIONS_BF16, _BF16, bf16=True),
    KernelKind("avx512", _OPTIONS_AVX512, _AVX512, bf16=False),
    KernelKind("avx2", ("-march=x86-64-v3",), _AVX2, bf16=False),
)
"""Fastest first."""


def read_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Processor:
    """This machine's processor; one without features where that cannot be read."""
    name, features = platform.machine(), frozenset[str]()
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return Processor(name, features)
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        elif key.strip() == "flags":
            features = frozenset(value.split())
            break
    return Processor(name, features)


def usable_kinds(processor: Processor) -> list[KernelKind]:
    """The kinds of kernels that run on this processor and under this kernel, fastest first."""
    return [
        kind
        for kind in KINDS
        if kind.features <= processor.features
        and ("amx_tile" not in kind.features or _tiles_are_allowed())
    ]


_ARCH_REQ_XCOMP_PERM, _XFEATURE_TILE_DATA, _SYS_ARCH_PRCTL = 0x1023, 18, 158


def _tiles_are_allowed() -> bool:
    """Ask Linux for AMX's registers, which it keeps from processes that do not ask (since 5.16)."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_TILE_DATA) == 0)
