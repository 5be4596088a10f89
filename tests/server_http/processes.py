"""Servers in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from server.config.option import PREFIX

ROOT = Path(__file__).parents[2]


@contextmanager
def process_of(arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """``python -m`` with these arguments, and no options of the shell that runs the tests; killed
    at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(PREFIX)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def server_process(grace_s: float, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with a scripted engine, and its address."""
    with process_of(["tests.server_http.process", str(grace_s), *options]) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
