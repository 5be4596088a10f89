"""Create .venv and install what pyproject.toml pins. Standard library only; called by make.

    python3 tools/setup_env.py [--gpu] [--dev]

torch comes first, since the rest only asks for a range: without --gpu, a build without CUDA. Where
pip's own indexes have no such build, uv is asked for it, which knows where it is published; failing
that, the build that pip finds is taken, which may bring gigabytes of CUDA libraries. uv also
installs the other packages, in a tenth of pip's time; pip does it where uv cannot. Tests compare
our calls with FlashInfer's signatures, so --dev brings it too, but without what only a GPU needs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


def main() -> int:
    """Set the environment up; 0 when all is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="torch with CUDA, and the gpu extra")
    parser.add_argument("--dev", action="store_true", help="what tests, lint and types need, too")
    options = parser.parse_args()
    if not PYTHON.exists():
        print(f"Creating {VENV.name} with Python {sys.version.split()[0]}", flush=True)
        venv.create(VENV, with_pip=True)
    import tomllib  # not at the top: an older Python should get as far as the message below

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = project["tool"]["radix-engine"]
    pip("--quiet", f"uv=={pins['uv']}")
    installed = torch_version()
    if options.gpu and installed.endswith("+cpu"):
        pip_command("uninstall", "--yes", "torch")
        installed = ""
    if not installed:
        install_torch(pins["torch"], gpu=options.gpu)
    extras = [name for name in ("gpu", "dev") if getattr(options, name)]
    signatures_only = options.dev and not options.gpu
    if signatures_only:
        extras.append("gpu-signatures")
    target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    print("Installing the other packages", flush=True)
    status = install("--editable", target)
    if status == 0 and signatures_only:
        # What they depend on would be some 300 MB of compilers and libraries for a GPU.
        gpu_pins = project["project"]["optional-dependencies"]["gpu"]
        status = install("--no-deps", *gpu_pins)
    if status == 0:
        compile_what_runs()
    return status


def install(*arguments: str) -> int:
    """Install with uv, or with pip where uv cannot; the exit status."""
    if uv(*arguments) == 0:
        return 0
    return pip("--quiet", *arguments)


def compile_what_runs() -> None:
    """Have Python keep the bytecode of all modules that a server imports, so that it starts fast.

    Also where the user's environment tells Python to write none: then every start would compile
    thousands of files again.
    """
    print("Compiling what a server imports", flush=True)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    modules = "import server.__main__, server.engine, workloads.__main__, workloads.agents.bench"
    subprocess.run([PYTHON, "-c", modules], check=False, cwd=ROOT, env=environment)


def torch_version() -> str:
    """The version of torch in .venv, empty when there is none; whether it fits is checked later."""
    probe = "import importlib.metadata as m; print(m.version('torch'))"
    found = subprocess.run([PYTHON, "-c", probe], check=False, capture_output=True, text=True)
    return found.stdout.strip()


def install_torch(version: str, *, gpu: bool) -> None:
    """Install torch, with CUDA or without. Exits when that fails."""
    plain = f"torch=={version}"
    print(f"Installing torch {version} ({'CUDA' if gpu else 'CPU'} build)", flush=True)
    if not gpu:
        if pip(f"{plain}+cpu", quiet_errors=True) == 0:
            return
        print("pip's indexes have no CPU build; asking uv for it", flush=True)
        if uv("--torch-backend", "cpu", plain) == 0:
            return
        print("No CPU build of torch can be had; installing the one that pip finds", flush=True)
    if (status := pip(plain)) != 0:
        sys.exit(status)


def pip(*arguments: str, quiet_errors: bool = False) -> int:
    """Run ``pip install``; its exit status."""
    # Not compiled ahead: of torch's thousands of files only those that are used ever are.
    return pip_command("install", "--no-compile", *arguments, quiet_errors=quiet_errors)


def pip_command(*arguments: str, quiet_errors: bool = False) -> int:
    """Run pip; its exit status."""
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *arguments]
    errors = subprocess.DEVNULL if quiet_errors else None
    return subprocess.run(command, check=False, stderr=errors).returncode


def uv(*arguments: str) -> int:
    """Run ``uv pip install``; its exit status."""
    command = [str(PYTHON), "-m", "uv", "pip", "install", "--python", str(PYTHON), *arguments]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    sys.exit(main())
