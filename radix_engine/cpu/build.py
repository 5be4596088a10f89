"""Compiling the kernels, once per machine: the first start takes some seconds more.

The result is kept in the user's cache folder under a name made of everything that it depends on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from radix_engine.cpu.processor import KernelKind
from radix_engine.user_cache import user_cache

SOURCES = Path(__file__).parent / "kernels"

_OPTIONS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",  # only what the code says is fused: see simd.h
    "-fno-math-errno",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
    "-Wno-uninitialized",  # g++ 12 warns inside its own header of AVX-512
    "-Wno-maybe-uninitialized",
    "-pthread",
    "-shared",
    "-fPIC",
)
_COMPILERS = ("g++", "c++", "clang++")


class BuildError(Exception):
    """The kernels cannot be compiled here; the message says why and what would help."""


def build(
    kind: KernelKind,
    cache: Path | None = None,
    say: Callable[[str], None] | None = None,
    compiler: str | None = None,
) -> Path:
    """The shared library with this kind of kernels, compiled unless that was done before.

    ``cache``: the folder for results (None: in the user's cache). ``compiler``: None looks for g++,
    c++ and clang++. Takes 5 to 15 seconds on one processor, the sources in parallel. Raises
    BuildError.
    """
    compiler = compiler or _find_compiler()
    folder = (cache if cache is not None else user_cache()) / "kernels"
    sources = sorted(SOURCES.glob("*.cpp"))
    target = folder / f"{kind.name}-{_key(kind, compiler)}.so"
    if target.is_file():
        return target
    if say is not None:
        say(f"Compiling the kernels for this processor ({kind.name}, once)")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as work:
            library = _compile(compiler, kind, sources, Path(work))
            os.replace(library, target)
    except OSError as error:
        raise BuildError(f"the kernels cannot be kept in {folder}: {error}") from error
    return target


def _compile(compiler: str, kind: KernelKind, sources: list[Path], work: Path) -> Path:
    options = [*_OPTIONS, *kind.options]
    objects = [work / f"{source.stem}.o" for source in sources]
    running = [
        subprocess.Popen(
            [compiler, *options, "-c", str(source), "-o", str(target)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for source, target in zip(sources, objects, strict=True)
    ]
    outputs = [process.communicate()[0] for process in running]
    for process, output in zip(running, outputs, strict=True):
        _check(process.returncode, output)
    library = work / "kernels.so"
    linked = subprocess.run(
        [compiler, *options, *map(str, objects), "-o", str(library)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    _check(linked.returncode, linked.stdout)
    return library


def _check(status: int, output: bytes) -> None:
    if status != 0:
        lines = output.decode("utf-8", errors="replace").strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[-1] if lines else "")
        raise BuildError(f"the compiler failed (status {status}): {first}")


def _find_compiler() -> str:
    for name in _COMPILERS:
        if (path := shutil.which(name)) is not None:
            return path
    raise BuildError(
        f"there is no C++ compiler ({', '.join(_COMPILERS)}) on the path; install one, such as "
        "Debian's package g++"
    )


def _key(kind: KernelKind, compiler: str) -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update("\0".join((*_OPTIONS, *kind.options)).encode())
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"{compiler} cannot be run: {error}") from error
    digest.update(version)
    return digest.hexdigest()[:16]
