"""The compilers that check-gpu-offline needs: nvcc with its toolkit, ninja, and one for C."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

STUB_SOURCE = Path(__file__).resolve().parents[2] / "tools" / "cuda_runtime_stub.c"

INSTALL_NVCC = "pip install " + " ".join(
    f"'nvidia-{name}==13.0.*'"
    for name in ("cuda-nvcc", "nvvm", "cuda-crt", "cuda-runtime", "cuda-cccl")
)
_USUAL_HOME = Path("/usr/local/cuda")
_STUB_FLAGS = ("-std=c11", "-O1", "-shared", "-fPIC")


class Missing(Exception):
    """Something that has to be installed first; the message says in one line what, and how."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A CUDA toolkit: its folder, which holds bin/nvcc, and its release, "13.0" for example."""

    home: Path
    release: str

    @property
    def major(self) -> str:
        """The release before the dot: what its libraries' names end with."""
        return self.release.split(".")[0]


def find_toolkit(
    environment: Mapping[str, str] = os.environ,
    packages: Iterable[str] = sys.path,
    usual: Path = _USUAL_HOME,
) -> Toolkit:
    """The toolkit that CUDA_HOME names, else that of the nvcc on PATH, else one that was installed
    from PyPI into ``packages``, else the ``usual`` one. Raises `Missing` where there is none."""
    for nvcc in _candidates(environment, packages, usual):
        if (found := _toolkit_of(nvcc)) is not None:
            return found
    raise Missing(
        "there is no nvcc in CUDA_HOME, on PATH or among Python's packages, to compile "
        f"FlashInfer's kernels with; install it: {INSTALL_NVCC}"
    )


def find_ninja(environment: Mapping[str, str] = os.environ) -> Path:
    """The program ninja, also where only this interpreter's environment has it."""
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join((environment.get("PATH", os.defpath), beside))
    if (found := shutil.which("ninja", path=path)) is None:
        raise Missing(
            "there is no ninja, which FlashInfer compiles with; install it: pip install ninja"
        )
    return Path(found)


def find_compiler(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The command of a C compiler. nvcc needs one for C++, which comes with it."""
    if given := environment.get("CC"):
        return shlex.split(given)
    for name in ("cc", "gcc", "clang"):
        if (found := shutil.which(name, path=environment.get("PATH"))) is not None:
            return [found]
    raise Missing("there is no C compiler; install gcc and g++ (Debian: apt-get install g++)")


def build_stubs(folder: Path, toolkit: Toolkit, compiler: list[str]) -> tuple[Path, Path]:
    """Compile what stands in for CUDA's runtime and for its driver library; their paths.

    They carry the names that modules compiled with ``toolkit`` ask for, so that modules are linked
    with them and, where they are loaded first, get them. Raises `Missing` without their source.
    """
    if not STUB_SOURCE.exists():
        raise Missing("tools/cuda_runtime_stub.c is missing; run this in a checkout")
    folder.mkdir(parents=True, exist_ok=True)
    runtime, driver = folder / "libcudart.so", folder / "libcuda.so"
    name = f"libcudart.so.{toolkit.major}"
    # Symbols of a version, as the real one's: a module that was linked with that one asks for it.
    versions, empty = folder / "versions", folder / "empty.c"
    versions.write_text(f"{name} {{ global: *; }};\n")
    empty.write_text("")
    _compile(
        [*compiler, *_STUB_FLAGS, f"-Wl,--version-script={versions}"], STUB_SOURCE, name, runtime
    )
    _compile([*compiler, *_STUB_FLAGS], empty, "libcuda.so.1", driver)
    return runtime, driver


def _candidates(
    environment: Mapping[str, str], packages: Iterable[str], usual: Path
) -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if folder := environment.get(variable):
            yield Path(folder) / "bin" / "nvcc"
    if (found := shutil.which("nvcc", path=environment.get("PATH", os.defpath))) is not None:
        yield Path(found)
    for folder in packages:
        # From CUDA 13 on its packages share a folder: nvidia/cu13. nvcc 12 lay apart from what
        # it needs, and does not find it.
        yield from sorted(Path(folder).glob("nvidia/cu*/bin/nvcc"), reverse=True)
    yield usual / "bin" / "nvcc"


def _toolkit_of(nvcc: Path) -> Toolkit | None:
    """nvcc says itself where its toolkit lies: what is on PATH may be a script that calls it."""
    version = _answer([str(nvcc), "--version"])
    dry_run = _answer([str(nvcc), "--dryrun", "-c", "-x", "cu", os.devnull])
    release = re.search(r"release (\d+\.\d+)", version)
    top = re.search(r"^#\$ TOP=(.+)$", dry_run, re.MULTILINE)
    if release is None or top is None:
        return None
    home = Path(top[1].strip()).resolve()
    return Toolkit(home, release[1]) if (home / "bin" / "nvcc").exists() else None


def _answer(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


def _compile(command: list[str], source: Path, name: str, target: Path) -> None:
    whole = [*command, f"-Wl,-soname,{name}", str(source), "-o", str(target)]
    done = subprocess.run(whole, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{shlex.join(whole)} failed: {' '.join(done.stderr.split())[:300]}")
