"""Create .venv and install what pyproject.toml pins. Standard library only; called by make.

    python3 tools/setup_env.py [--gpu] [--dev]

torch comes first, since the rest only asks for a range: a build without CUDA unless --gpu is given.
Where pip's own indexes have no such build, uv is asked for it, which knows where it is published;
failing that, the build that pip finds is taken, which may bring gigabytes of CUDA libraries.
"""

from __future__ import annotations

import argparse
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

    pins = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if not has_torch():
        install_torch(pins["tool"]["radix-engine"]["torch"], gpu=options.gpu)
    extras = [name for name in ("gpu", "dev") if getattr(options, name)]
    target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    print("Installing the other packages", flush=True)
    return pip("--quiet", "--editable", target)


def has_torch() -> bool:
    """Whether some torch is installed already; its version is then checked by pip."""
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([PYTHON, "-c", probe], check=False).returncode == 0


def install_torch(version: str, *, gpu: bool) -> None:
    """Install torch, with CUDA or without. Exits when that fails."""
    plain = f"torch=={version}"
    print(f"Installing torch {version} ({'CUDA' if gpu else 'CPU'} build)", flush=True)
    if not gpu:
        if pip(f"{plain}+cpu", quiet_errors=True) == 0:
            return
        print("pip's indexes have no CPU build; asking uv for it", flush=True)
        uv = [PYTHON, "-m", "uv", "pip", "install", "--python", PYTHON, "--torch-backend", "cpu"]
        if pip("--quiet", "uv") == 0 and subprocess.run([*uv, plain], check=False).returncode == 0:
            return
        print("No CPU build of torch can be had; installing the one that pip finds", flush=True)
    if (status := pip(plain)) != 0:
        sys.exit(status)


def pip(*arguments: str, quiet_errors: bool = False) -> int:
    """Run ``pip install``; its exit status."""
    command = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    errors = subprocess.DEVNULL if quiet_errors else None
    return subprocess.run(command, check=False, stderr=errors).returncode


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    sys.exit(main())
