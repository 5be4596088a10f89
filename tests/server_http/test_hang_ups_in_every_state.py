"""Whatever the engine is doing for a client that hangs up, it stops within two steps."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from scheduler import Limits
from server import Engine
from tests.server_http.real import make_tiny_engine
from tests.server_http.running import serving
from tests.server_http.stepping import COMPLETIONS, TIMEOUT_S, Steps, asked, wait_until


class Aborts:
    """Notes what the engine is told to end."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._told = threading.Semaphore(0)
        abort = engine.abort

        def noting(request_id: int) -> None:
            abort(request_id)
            self._told.release()

        monkeypatch.setattr(engine, "abort", noting)

    def wait(self) -> None:
        assert self._told.acquire(timeout=TIMEOUT_S), "nobody told the engine"


@pytest.mark.parametrize(
    ("body", "steps", "width"),
    [
        pytest.param({"prompt": "Say something.", "stream": True}, 6, 1, id="streamed"),
        pytest.param({"prompt": "Say something."}, 6, 1, id="whole"),
        pytest.param({"prompt": "x" * 200}, 3, 1, id="mid-prefill"),
        pytest.param({"prompt": "Say something.", "n": 4}, 6, 4, id="n-4"),
        pytest.param({"prompt": "Say something.", "n": 4, "stream": True}, 2, 4, id="n-4-streamed"),
        pytest.param(
            {
                "prompt": "Say something.",
                "use_beam_search": True,
                "n": 2,
                "best_of": 3,
                "ignore_eos": False,
            },
            4,
            3,
            id="beams",
        ),
    ],
)
def test_a_running_request_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: dict[str, Any],
    steps: int,
    width: int,
) -> None:
    with make_tiny_engine(tmp_path, 64, Limits(16, 8)) as engine:
        gate, aborts = Steps(engine, monkeypatch), Aborts(engine, monkeypatch)
        with serving(engine) as (url, _, _):
            with asked(url, {"max_tokens": 300, **body}):
                gate.allow(steps)
                gate.wait_until_begun(steps + 1)
            aborts.wait()
            gate.allow(1000)
            wait_until(lambda: engine.state()["running"] + engine.state()["waiting"] == 0)
            assert gate.begun <= steps + 2, "the step that was running, and one more"
            counters, state = engine.counters(), engine.state()
            assert counters["requests_aborted"] >= 1
            assert counters["generated_tokens"] <= width * (steps + 2)
            assert state["blocks_private"] == 0
            assert state["blocks_free"] + state["blocks_evictable"] == 64
            assert engine.audit() == []
            good = {"prompt": "Hi.", "max_tokens": 2}
            assert httpx.post(url + COMPLETIONS, json=good, timeout=60).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_queued_request_ends_and_the_running_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    with make_tiny_engine(tmp_path, 64, Limits(16, 1)) as engine:
        gate, aborts = Steps(engine, monkeypatch), Aborts(engine, monkeypatch)
        with serving(engine) as (url, _, _):
            with asked(url, {"prompt": "The first.", "max_tokens": 12}) as first:
                gate.wait_until_begun(1)
                with asked(url, {"prompt": "The second.", "max_tokens": 300, "stream": stream}):
                    gate.allow(2)
                    wait_until(lambda: engine.state()["waiting"] == 1)
                aborts.wait()
                gate.allow(2)
                wait_until(lambda: engine.state()["waiting"] == 0)
                assert engine.state()["running"] == 1
                gate.allow(100)
                assert first.recv(100).startswith(b"HTTP/1.1 200")
            counters = engine.counters()
            assert (counters["requests_finished"], counters["requests_aborted"]) == (1, 1)
            assert counters["generated_tokens"] == 12
            assert engine.audit() == []
