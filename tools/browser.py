"""See to a browser for the tests of the debug page: Debian's chromium, installed where that can be
done. Standard library only; called by make.

    python3 tools/browser.py

It never fails: without a browser those tests are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
_TIMEOUT_S = 900


def main() -> int:
    """Install chromium if there is none; always 0."""
    if any(map(shutil.which, NAMES)):
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(
            "No chromium, and it can be installed only by root with apt-get: the debug page's "
            "tests in a browser are skipped.",
            file=sys.stderr,
        )
        return 0
    print("Installing chromium for the debug page's tests", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "chromium"]):
        try:
            done = subprocess.run(
                ["apt-get", *command],
                env=environment,
                stdout=subprocess.DEVNULL,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            done = None
        if done is None or done.returncode:
            print(
                f"apt-get {command[0]} did not work: the debug page's tests in a browser are "
                "skipped.",
                file=sys.stderr,
            )
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
