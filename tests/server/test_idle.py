"""A server that has nothing to do does nothing, and probes make nothing for it to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from scheduler import Limits
from server import Engine
from server.http.app import create_app
from server.http.settings import HttpSettings
from tests.server.conftest import MakeEngine
from tests.server.prompts import greedy, ids

COMPLETIONS = "/v1/completions"
TIMEOUT_S = 20


class Naps:
    """How the engine's thread sleeps: for how long at most, None for ever; and how it is woken."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.limits: list[float | None] = []
        self._asleep = threading.Semaphore(0)
        wake = engine._loop._wake
        wait = wake.wait

        def noting(timeout: float | None = None) -> bool:
            self.limits.append(timeout)
            self._asleep.release()
            return wait(timeout)

        monkeypatch.setattr(wake, "wait", noting)

    def wait(self) -> None:
        """Until it has gone to sleep once more."""
        assert self._asleep.acquire(timeout=TIMEOUT_S)


def test_an_idle_engine_sleeps_until_it_is_woken_and_wakes_for_work_alone(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    naps = Naps(engine, monkeypatch)
    for count in range(1, 4):
        engine.generate([ids(20, count)], greedy(2))
        naps.wait()
        assert naps.limits == [None] * count, "it does not look again and again"
    steps = engine.readings().counters["steps"]
    engine.state(), engine.counters(), engine.queue(), engine.stalled_s()
    assert naps.limits == [None] * 3
    assert engine.readings().counters["steps"] == steps


def client_of(engine: Engine) -> TestClient:
    app = create_app(engine, settings=HttpSettings(wedged_after_s=60))
    return TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1))


def nodes(engine: Engine) -> list[tuple[int, str]]:
    tree: Any = engine.tree()
    return [(node["tokens"], node["text"]) for node in tree["nodes"]]


def test_probes_make_no_request_and_touch_no_memory(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.generate([ids(40, 1)], greedy(2))
    with client_of(engine) as client:
        before = engine.counters(), engine.state(), nodes(engine)
        for _ in range(5):
            for path in ("/health", "/ready", "/metrics", "/v1/models"):
                assert client.get(path).status_code == 200
        assert (engine.counters(), engine.state(), nodes(engine)) == before


def test_probes_need_no_gap_between_steps(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are answered in the middle of a step, whatever it takes."""
    engine = make_engine(limits=Limits(16, 4))
    model, begun, go_on = engine._loop._steps._model, threading.Event(), threading.Event()
    forward = model.forward

    def held(spans: Any) -> Any:
        begun.set()
        assert go_on.wait(TIMEOUT_S)
        return forward(spans)

    monkeypatch.setattr(model, "forward", held)
    with client_of(engine) as client:
        engine.submit(ids(600, 1), greedy(1), lambda _: None)
        assert begun.wait(TIMEOUT_S)
        for path in ("/health", "/ready", "/metrics", "/server_info", "/v1/models"):
            assert client.get(path).status_code == 200
        go_on.set()


class Panic(BaseException):
    """As of a native library."""


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_whose_thread_has_died_is_told_at_once_everywhere(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def panic(_: object) -> None:
        raise Panic("native code")

    engine = make_engine()
    body = {"prompt": ids(20, 1), "max_tokens": 2, "stream": stream}
    with client_of(engine) as client:
        assert client.get("/ready").status_code == 200
        monkeypatch.setattr(engine._loop._steps._model, "forward", panic)
        answer = client.post(COMPLETIONS, json=body)
        told = answer.text if stream else answer.json()["error"]["code"]
        assert answer.status_code == (200 if stream else 500)
        assert "engine_error" in told
        wait_until(lambda: not engine.is_alive())
        for path in ("/health", "/ready"):
            probe = client.get(path)
            assert (probe.status_code, probe.json()["status"]) == (503, "engine_stopped")
        refused = client.post(COMPLETIONS, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_stopped")
