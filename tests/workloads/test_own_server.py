from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.bench_startup import bench_startup
from workloads.own_server import (
    ServerFailed,
    free_port,
    own_server,
    peak_memory_bytes,
    server_command,
)

HEALTHY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print("listening", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


TELLING = "import os; print(*sorted(os.environ), flush=True)\n" + HEALTHY

# Loading for the first three times that it is asked, as ours says it; another engine's only path.
OTHERS = HEALTHY.replace(
    "self.send_response(200)",
    """
        Handler.asked = getattr(Handler, "asked", 0) + (self.path == "PATH")
        known = self.path == "PATH" or "PATH" == "/ready"
        self.send_response(404 if not known else 503 if Handler.asked <= 3 else 200)""",
)


def command(script: str, port: int) -> list[str]:
    return [sys.executable, "-S", "-c", script, str(port)]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_is_ready_within_the_block_and_gone_after_it(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "logs" / "server.log"
    with own_server(command(HEALTHY, port), port, log, poll_s=0.01) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        assert server.pid is not None
        assert is_running(server.pid)
        assert server.ready_s is not None
        assert server.ready_s > 0
        peak = peak_memory_bytes(server.pid)
        assert peak is not None
        assert peak > 2**20
    assert not is_running(server.pid)
    assert log.read_text().startswith("listening")


@pytest.mark.parametrize("path", ["/ready", "/health"])
def test_a_server_that_says_503_is_not_ready_yet_also_where_it_has_only_health(
    tmp_path: Path, path: str
) -> None:
    port, log = free_port(), tmp_path / "server.log"
    script = OTHERS.replace("PATH", path)
    with own_server(command(script, port), port, log, poll_s=0.01):
        pass
    assert log.read_text().count(f'"GET {path} HTTP/1.1" 503') == 3
    assert log.read_text().count(f'"GET {path} HTTP/1.1" 200') == 1


@pytest.mark.parametrize("given", [True, False], ids=["its own", "this process's"])
def test_options_of_the_shell_do_not_change_what_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    monkeypatch.setenv("RADIX_PREFIX_CACHE", "off")
    monkeypatch.setenv("RADIXES", "no option")
    port, log = free_port(), tmp_path / "server.log"
    environment = dict(os.environ) if given else None
    started = own_server(command(TELLING, port), port, log, 0.01, environment)
    with started:
        told = log.read_text().split()
    assert "RADIX_PREFIX_CACHE" not in told
    assert {"RADIXES", "PATH"} <= set(told)


def test_a_server_is_stopped_when_the_block_is_left_by_ctrl_c(tmp_path: Path) -> None:
    port = free_port()
    pids: list[int] = []

    def interrupted() -> None:
        with own_server(command(HEALTHY, port), port, tmp_path / "s.log", poll_s=0.01) as server:
            pids.append(server.pid or 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not is_running(pids[0])


ITS_STARTER = """
import sys
from pathlib import Path
from workloads.own_server import own_server
command = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
with own_server(command, int(sys.argv[2]), Path(sys.argv[3]), 0.01) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


def test_a_server_ends_with_the_process_that_started_it_also_if_that_is_killed(
    tmp_path: Path,
) -> None:
    port, log = free_port(), tmp_path / "server.log"
    starter = subprocess.Popen(
        [sys.executable, "-c", ITS_STARTER, HEALTHY, str(port), str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert starter.stdout is not None
        ends = os.pidfd_open(int(starter.stdout.readline()))
    finally:
        starter.kill()
        starter.communicate()
    try:
        # Readable once that process has ended.
        assert select.select([ends], [], [], 30.0)[0]
    finally:
        os.close(ends)


def test_a_server_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    script = "import sys; print('no such model: nowhere'); sys.exit(2)"
    port, log = free_port(), tmp_path / "s.log"
    with (
        pytest.raises(ServerFailed, match=r"(?s)status 2 .*s\.log.*no such model: nowhere"),
        own_server(command(script, port), port, log, poll_s=0.01),
    ):
        pass


def test_the_median_of_the_starts_after_the_first_is_written(tmp_path: Path) -> None:
    assert bench_startup(tmp_path, lambda port: command(HEALTHY, port), 0.0, 0.05) == 0
    written = json.loads((tmp_path / "bench-startup.json").read_text())
    starts = written["data"]["starts_s"]
    figure = written["figures"]["second_start_s"]
    assert len(starts) == 3
    assert figure["value"] == sorted(starts)[1]
    assert (figure["unit"], figure["goal"], figure["better"]) == ("s", 8.0, "lower")
    idle = written["figures"]["idle_cpu_percent"]
    assert 0 <= idle["value"] < 100
    assert (idle["unit"], idle["goal"], idle["better"]) == ("% of a core", 1.0, "lower")


def test_a_server_that_cannot_start_fails_the_startup_benchmark(tmp_path: Path) -> None:
    assert bench_startup(tmp_path, lambda port: command("raise SystemExit(3)", port)) == 1
    assert not (tmp_path / "bench-startup.json").exists()


def test_the_servers_command_uses_this_interpreter_and_the_options() -> None:
    assert server_command(81, ["--prefix-cache", "on"]) == [
        sys.executable,
        "-m",
        "server",
        "--port",
        "81",
        "--prefix-cache",
        "on",
    ]
