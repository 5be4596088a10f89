"""The end of whole processes: what runs, hangs or is still being loaded, and their children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server_http.processes import process_of, server_process
from tests.tiny import make_tiny_folder

COMPLETIONS = "/v1/completions"
TIMEOUT_S = 60


def children_of(pid: int) -> list[int]:
    """Of all its threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def are_gone(pids: list[int]) -> bool:
    """Whether these processes have ended; a zombie has, too."""
    states = []
    for pid in pids:
        try:
            states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue
    return set(states) <= {"Z"}


def streamed(url: str, body: dict[str, Any], lines: list[str], begun: threading.Event) -> None:
    """Reads a stream to its end."""
    with httpx.stream("POST", url + COMPLETIONS, json=body, timeout=TIMEOUT_S) as response:
        for line in response.iter_lines():
            lines.append(line)
            begun.set()


def streams(url: str, body: dict[str, Any], count: int) -> list[tuple[threading.Thread, list[str]]]:
    """So many streams that have begun."""
    started = []
    for _ in range(count):
        lines: list[str] = []
        begun = threading.Event()
        thread = threading.Thread(target=streamed, args=(url, body, lines, begun))
        thread.start()
        assert begun.wait(TIMEOUT_S)
        started.append((thread, lines))
    return started


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def wait_for(url: str, path: str, status: int, process: subprocess.Popen[str]) -> httpx.Response:
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        assert process.poll() is None
        try:
            response = httpx.get(url + path, timeout=TIMEOUT_S)
        except httpx.TransportError:
            response = None
        if response is not None and response.status_code == status:
            return response
        time.sleep(0.02)
    raise AssertionError(f"{path} never said {status}")


@pytest.mark.slow
def test_an_engine_that_hangs_is_left_behind_and_its_streams_end_with_an_error() -> None:
    body = {"prompt": "please hold", "stream": True}
    with server_process(0.0, "--hang") as (process, url):
        running = streams(url, body, 3)
        began = time.monotonic()
        process.terminate()
        refused = httpx.post(url + COMPLETIONS, json=body, timeout=TIMEOUT_S)
        assert refused.status_code == 503
        for thread, lines in running:
            thread.join(TIMEOUT_S)
            *_, error, done = [line for line in lines if line]
            assert '"code":"server_shutting_down"' in error
            assert done == "data: [DONE]"
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 1
        assert time.monotonic() - began < 10


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_folder(tmp_path_factory.mktemp("models") / "tiny", tokenizer=True)


def command(tiny: Path, port: int, *options: str) -> list[str]:
    shared = ["--model", str(tiny), "--port", str(port), "--kernels", "torch", "--dtype", "fp32"]
    return ["server", *shared, "--kv-memory", "64MiB", *options]


@pytest.mark.slow
def test_a_server_with_several_processes_ends_well_and_leaves_none(tiny: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    body = {"prompt": [5, 6, 7], "stream": True, "max_tokens": 900, "ignore_eos": True}
    with process_of(command(tiny, port, "--tensor-parallel", "2", "--grace", "0.3")) as process:
        loading = wait_for(url, "/ready", 503, process).json()
        assert loading["status"] == "loading"
        assert httpx.get(url + "/health", timeout=TIMEOUT_S).status_code == 200
        early = httpx.post(url + COMPLETIONS, json=body, timeout=TIMEOUT_S)
        assert (early.status_code, early.json()["error"]["code"]) == (503, "loading")
        wait_for(url, "/ready", 200, process)
        children = children_of(process.pid)
        assert len(children) == 1
        running = streams(url, body, 3)
        process.terminate()
        refused = httpx.post(url + COMPLETIONS, json=body, timeout=TIMEOUT_S)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        for thread, lines in running:
            thread.join(TIMEOUT_S)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        assert are_gone(children)


@pytest.mark.slow
def test_children_are_gone_soon_after_their_parent_was_killed(tiny: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    body = {"prompt": [5, 6, 7], "stream": True, "max_tokens": 900, "ignore_eos": True}
    with process_of(command(tiny, port, "--tensor-parallel", "2")) as process:
        wait_for(url, "/ready", 200, process)
        children = children_of(process.pid)
        assert children
        lines: list[str] = []
        begun = threading.Event()

        def read() -> None:
            try:
                streamed(url, body, lines, begun)
            except httpx.TransportError:
                return

        reading = threading.Thread(target=read)
        reading.start()
        assert begun.wait(TIMEOUT_S)
        os.kill(process.pid, signal.SIGKILL)
        end = time.monotonic() + 2
        while not are_gone(children):
            assert time.monotonic() < end
            time.sleep(0.02)
        reading.join(TIMEOUT_S)


@pytest.mark.slow
def test_a_signal_while_the_model_is_loaded_is_a_clean_end(tiny: Path) -> None:
    port = free_port()
    with process_of(command(tiny, port)) as process:
        wait_for(f"http://127.0.0.1:{port}", "/ready", 503, process)
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, errors) == (0, "")
