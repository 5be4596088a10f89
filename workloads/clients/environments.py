"""The environments that clients run in: one each under build/, made of public packages by name.

The versions are pinned here and nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from workloads.cpu.peer_setup import run_logged

CLIENTS: Mapping[str, str] = {
    "aiperf": "aiperf==0.13.0",
    "canitoolcall": "canitoolcall==0.1.1",
}


def program(build: Path, client: str) -> Path:
    """The command of a client in its environment."""
    return build / "clients" / client / "bin" / client


def set_up(build: Path, client: str, log: Path) -> None:
    """Make a client's environment under ``build``, unless it is there with this version.

    aiperf takes about 840 MB of disk. What the installer says goes to ``log``. Raises SetupFailed.
    """
    package, folder = CLIENTS[client], build / "clients" / client
    stamp = folder / "ready"
    with suppress(OSError):
        if stamp.read_text() == package:
            return
    print(f"{client}: installing {package} (log: {log})", file=sys.stderr)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    run_logged([sys.executable, "-m", "venv", "--clear", str(folder)], log, client)
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    # Not compiled ahead: of thousands of files only those that are used ever are.
    options = ["--no-compile", "--disable-pip-version-check"]
    run_logged([*pip, "install", *options, package], log, client)
    stamp.write_text(package)
